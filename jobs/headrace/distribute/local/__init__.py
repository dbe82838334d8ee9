"""Epochs in this process, without a JVM."""
