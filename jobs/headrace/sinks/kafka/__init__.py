"""Topics of Kafka as sinks."""
