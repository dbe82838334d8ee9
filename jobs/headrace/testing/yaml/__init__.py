"""Unit tests of pipelines in YAML."""
