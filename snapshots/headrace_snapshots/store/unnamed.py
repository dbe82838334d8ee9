"""Files that get their name only once they are complete: a reader sees all of a file or nothing.

A file without a name yet is locked by its writer. One that nobody has locked was left by a process that died.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def unnamed_file(folder: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file in ``folder``, locked as long as this lasts, and removed then if it is still there."""
    while True:
        path = folder / uuid.uuid4().hex
        with path.open("xb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file.fileno()).st_nlink:
                    yield path, file
                    return
            finally:
                path.unlink(missing_ok=True)
        # Somebody who swept had the lock first: once more, under another name.


def sweep(folder: Path) -> None:
    """Remove from ``folder`` what processes left there that died."""
    for left in folder.iterdir():
        # Gone already, still locked, or another user's, who will sweep it.
        with suppress(FileNotFoundError, BlockingIOError, PermissionError), left.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()
