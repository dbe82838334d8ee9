"""Memory that a mapped file takes, given back to the system."""

import ctypes
import mmap
from functools import cache
from typing import Any

import pyarrow as pa


def let_go(file: pa.Buffer) -> None:
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
