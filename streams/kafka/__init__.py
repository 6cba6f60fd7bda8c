"""Kafka: how records come in, and how they go out."""
