"""Formats of landed files, by name: Headrace's own, and those of other distributions.

A definition names a format; its code (``headrace.formats``) is imported when a file is read or written.
"""

from typing import Any, Final

from headrace.entry_points import EntryPointGroup

FORMATS: Final[EntryPointGroup[Any]] = EntryPointGroup("headrace.formats", "file format")
"""Their names; ``headrace.ext.formats`` has them with their type."""
