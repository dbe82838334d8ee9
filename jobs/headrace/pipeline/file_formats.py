"""Formats of landed files, by name: Headrace's own, and those of other distributions.

A definition names a format; its code (``headrace.formats``) is imported when a file is read or written.
"""

from typing import TYPE_CHECKING, Final

from headrace.entry_points import EntryPointGroup

if TYPE_CHECKING:
    from headrace.formats.file_format import FileFormat

FORMATS: "Final[EntryPointGroup[FileFormat]]" = EntryPointGroup(
    "headrace.formats",
    "file format",
    provides="headrace.formats.file_format:FileFormat",
    built_in={
        "json": "headrace.formats.json_lines:JSON",
        "csv": "headrace.formats.csv_lines:CSV",
        "parquet": "headrace.formats.parquet:PARQUET",
    },
)
