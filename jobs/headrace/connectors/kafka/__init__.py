"""Kafka: topics as a source and as a sink."""
