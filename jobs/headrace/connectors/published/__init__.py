"""Other pipelines of Headrace as a source: what readers see of them."""
