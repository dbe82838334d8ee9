"""Parts of Headrace that another distribution brings."""
