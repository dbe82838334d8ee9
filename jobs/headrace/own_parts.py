"""Where Headrace's own parts are, by group and name, and which class a part of each group is an instance of.

Registries stand below the parts and read it here; ``headrace`` fills it from the table at the top when it is imported,
which costs nothing: this module imports none.
"""

PLACES: dict[str, dict[str, str]] = {}
PORTS: dict[str, str] = {}


def give(places: dict[str, dict[str, str]], ports: dict[str, str]) -> None:
    """Say where all own parts are (``module:attribute``), and the classes."""
    PLACES.update(places)
    PORTS.update(ports)
