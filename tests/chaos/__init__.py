"""Chaos: several workers under kills and outages, and an observer that knows only topics and SQL."""
