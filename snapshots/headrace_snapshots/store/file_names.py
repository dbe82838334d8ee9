"""Names of files are UTF-8, whatever the locale of the process is.

Python decodes names as the locale says: in a process without UTF-8 a file would have another name than in the next one,
and be read once more.
"""

import os
import sys
from typing import Final

from headrace.ext.stores import sort_key

_AS_THEY_ARE: Final = sys.getfilesystemencoding() == "utf-8"


def file_of(path: str) -> str:
    """What Python calls the file of ``path``."""
    return path if _AS_THEY_ARE else os.fsdecode(sort_key(path))


def path_of(file: str) -> str:
    """The path, or a part of it, that a ``file`` of Python has."""
    return file if _AS_THEY_ARE else os.fsencode(file).decode("utf-8", "surrogateescape")
