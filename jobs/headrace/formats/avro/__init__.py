"""Avro: messages of which each is one datum, decoded for all of them at once, field by field."""
