"""What code of users has that reads or writes through Spark: a connection, a session, the answers of databases."""
