"""Topics of Kafka, read by aiokafka's connections and requests; batches become columns here (``batches``)."""
