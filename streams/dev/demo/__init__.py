"""The story that `make demo` plays: durable runs from a Kafka record to their last event, on real parts."""
