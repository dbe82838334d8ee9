"""Late records and dead letters, landed again."""
