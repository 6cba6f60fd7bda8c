"""Outages of everything a worker needs, on real processes."""
