"""Systems beside the root that records come from, each as a source: what a definition says of one."""
