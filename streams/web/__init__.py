"""The worker's web server: the verbs on one address, health and metrics on another."""
