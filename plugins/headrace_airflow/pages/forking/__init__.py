"""Code of users for pages: never in the API server, and without the second in which a new process imports Headrace."""
