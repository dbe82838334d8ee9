"""Whatever Spark reaches, by a user's class: ranges as a source, a target as a sink."""
