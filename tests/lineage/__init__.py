"""Pipelines that read pipelines, as one."""
