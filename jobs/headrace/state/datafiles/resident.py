"""Memory that mapped files take: which of their pages stay in this process when nobody looks at them."""

import ctypes
import mmap
import threading
import weakref
from functools import cache
from typing import Any, Final

import pyarrow as pa

LOCAL_BYTES: Final = 512 * 2**20
"""The limit where one process does all work."""

_TURNS = 4
"""Over the limit, every so many-th file stays in place of another one."""


class Resident:
    """Mapped files whose pages stay, of at most ``limit`` bytes together: to load a page again costs as much as looking
    up hundreds of rows. Safe for many threads.

    An epoch looks at all files in turn, so the one that was not used for longest is what is wanted next: over the limit
    most newcomers go, and some take the place of what came first, which may not be in use any more.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: dict[int, weakref.ref[pa.Buffer]] = {}
        self._bytes = self._refused = 0
        self._lock = threading.RLock()  # a file may be collected while it is held

    @property
    def kept_bytes(self) -> int:
        """Bytes of the files whose pages stay."""
        return self._bytes

    def let_go(self, file: pa.Buffer) -> None:
        """Let the pages of ``file``, all of which is mapped and which is not used for now, stay or go."""
        for leaving in self._leaving(file):
            release(leaving)

    def _leaving(self, file: pa.Buffer) -> list[pa.Buffer]:
        with self._lock:
            if file.address in self._kept:
                return []
            leaving: list[pa.Buffer] = []
            if self._bytes + file.size > self.limit:
                self._refused += 1
                if self._refused % _TURNS or file.size > self.limit:
                    return [file]
                leaving = self._oldest(self._bytes + file.size - self.limit)
            self._kept[file.address] = weakref.ref(file)
            self._bytes += file.size
            weakref.finalize(file, self._forget, file.address, file.size).atexit = False
            return leaving

    def _oldest(self, size: int) -> list[pa.Buffer]:
        """Files of ``size`` bytes together, those first that have stayed for longest; they stay no more."""
        leaving: list[pa.Buffer] = []
        for address in [*self._kept]:
            if size <= 0:
                break
            file = self._kept[address]()
            if file is not None:
                leaving.append(file)
                size -= file.size
                self._forget(address, file.size)
        return leaving

    def _forget(self, address: int, size: int) -> None:
        with self._lock:
            if self._kept.pop(address, None) is not None:
                self._bytes -= size


RESIDENT: Final = Resident(0)
"""That of this process: nothing stays, unless the process says otherwise. (Spark has a process for each core.)"""


def release(file: pa.Buffer) -> None:
    """Take the pages of a file, all of which is mapped as ``file``, out of this process. The next access to a page
    loads it again from the file: references to it stay valid. The pages stay in the system's cache of files.
    """
    if (madvise := _madvise()) is not None and file.size:
        madvise(file.address, file.size, mmap.MADV_DONTNEED)


@cache
def _madvise() -> Any:
    function = getattr(ctypes.CDLL(None), "madvise", None)  # other systems keep the pages
    if function is not None:
        function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
