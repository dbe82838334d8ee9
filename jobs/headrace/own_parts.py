"""What stands at the top of Headrace and is needed below: where its own parts are, and lists of places.

What stands below names nothing above it. It reads here what ``headrace`` gives when it is imported; this module imports
none, so that costs nothing.
"""

PLACES: dict[str, dict[str, str]] = {}
"""Where own parts are (``module:attribute``), by group and name."""
PORTS: dict[str, str] = {}
"""Where the class is of which each part of a group is an instance."""
TABLES: dict[str, str] = {}
"""Modules of lists of places, which are loaded when they are asked for."""


def register_parts(places: dict[str, dict[str, str]], ports: dict[str, str], tables: dict[str, str]) -> None:
    """Say where everything is."""
    PLACES.update(places)
    PORTS.update(ports)
    TABLES.update(tables)
