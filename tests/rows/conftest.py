"""Servers that rows are delivered to."""

from tests.sinks.conftest import pytest_itemcollected, server, warehouse

__all__ = ["pytest_itemcollected", "server", "warehouse"]
