"""What stands at the top of Headrace and is needed below: where its own parts are, what they need, and lists of places.

What stands below names nothing above it. It reads here what ``headrace`` gives when it is imported; this module imports
none, so that costs nothing.
"""

PLACES: dict[str, dict[str, str]] = {}
"""Where own parts are (``module:attribute``), by group and name."""
PORTS: dict[str, str] = {}
"""Where the class is of which each part of a group is an instance."""
EXTRAS: dict[str, tuple[str, ...]] = {}
"""The modules that each extra brings for Headrace's own use."""
CONNECTIONS: dict[str, str] = {}
"""How connections of sinks and sources are written, by kind."""
TABLES: dict[str, str] = {}
"""Modules of lists of places, which are loaded when they are asked for."""


def register_parts(
    places: dict[str, dict[str, str]],
    ports: dict[str, str],
    extras: dict[str, tuple[str, ...]],
    connections: dict[str, str],
    tables: dict[str, str],
) -> None:
    """Say where everything is, and what it needs."""
    PLACES.update(places)
    PORTS.update(ports)
    EXTRAS.update(extras)
    CONNECTIONS.update(connections)
    TABLES.update(tables)
