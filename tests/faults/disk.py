"""A disk that loses power: the calls of a real run on a folder are recorded, and done again up to any of them.

What was not flushed may be lost or not, each thing by itself: the bytes of a file, and the names in a folder. So a cut
leaves many disks that are possible; ``Disk.after_cut`` gives the one that ``survives`` chooses.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Call:
    """``what`` the process did to ``path`` (both relative to the folder), or was told (``mark``).

    ``content``: what a file held as it was flushed; None for a folder.
    """

    what: str
    path: str
    to: str = ""
    content: bytes | None = None


@dataclass
class File:
    """``flushed``: what is sure to be read after a cut."""

    flushed: bytes = b""


@dataclass
class Folder:
    """Names as processes see them, and as they were when the folder was flushed last."""

    names: "dict[str, File | Folder]" = field(default_factory=dict)
    flushed: "dict[str, File | Folder]" = field(default_factory=dict)


Tree = dict[str, bytes]
"""Files by path."""

Survives = Callable[[str], bool]
"""Whether what was done last to a name is there after a cut, though nothing flushed it."""


class Disk:
    """A folder that begins as ``files``, all of them flushed."""

    def __init__(self, files: Tree) -> None:
        self.root = Folder()
        for path, content in files.items():
            folder = self.root
            *folders_above, name = path.split("/")
            for part in folders_above:
                made_folder = folder.names.setdefault(part, Folder())
                assert isinstance(made_folder, Folder)
                folder.flushed[part], folder = made_folder, made_folder
            folder.names[name] = folder.flushed[name] = File(content)

    def do(self, call: Call) -> None:
        """What succeeded once, again."""
        folder, name = self._place(call.path)
        if call.what == "made":
            folder.names.setdefault(name, Folder())
        elif call.what == "removed":
            folder.names.pop(name, None)  # a file may go before it was flushed
        elif call.what in {"linked", "replaced"}:
            target, as_name = self._place(call.to)
            target.names[as_name] = folder.names[name]
            if call.what == "replaced":
                del folder.names[name]
        elif call.what == "flushed" and call.content is None:
            flushed_folder = folder.names[name] if name else self.root
            assert isinstance(flushed_folder, Folder)
            flushed_folder.flushed = dict(flushed_folder.names)
        elif call.what == "flushed":
            file = folder.names.setdefault(name, File())
            assert isinstance(file, File)
            file.flushed = call.content or b""

    def visible_tree(self) -> Tree:
        """The files that processes see without a cut; those that were never flushed are empty."""
        return dict(_files(self.root, "", lambda path: True))

    def after_cut(self, survives: Survives) -> Tree:
        """The files after a cut now."""
        return dict(_files(self.root, "", survives))

    def _place(self, path: str) -> tuple[Folder, str]:
        folder = self.root
        *folders_above, name = path.split("/")
        for part in folders_above:
            folder_below = folder.names[part]
            assert isinstance(folder_below, Folder)
            folder = folder_below
        return folder, name


def _files(folder: Folder, base: str, survives: Survives) -> Iterator[tuple[str, bytes]]:
    for name in sorted({*folder.names, *folder.flushed}):
        path = f"{base}{name}"
        names_there = (
            folder.names if folder.names.get(name) is folder.flushed.get(name) or survives(path) else folder.flushed
        )
        found_file = names_there.get(name)
        if isinstance(found_file, Folder):
            yield from _files(found_file, f"{path}/", survives)
        elif found_file is not None:
            yield path, found_file.flushed


def read_tree(root: Path) -> Tree:
    """All files below ``root``."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def write_tree(files: Tree, root: Path) -> None:
    """Make ``root`` hold ``files``."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


class Recording:
    """The calls of this process on what is below ``root``, in an order in which they could have happened."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree_before = read_tree(root)
        self.calls: list[Call] = []
        self._lock = threading.Lock()

    def mark(self, what: str) -> None:
        """Note that the process was told ``what``."""
        with self._lock:
            self.calls.append(Call("mark", what))

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name, what in {"mkdir": "made", "unlink": "removed", "remove": "removed", "rmdir": "removed"}.items():
            patch.setattr(os, name, self._one(getattr(os, name), what))
        for name, what in {"link": "linked", "replace": "replaced", "rename": "replaced"}.items():
            patch.setattr(os, name, self._two(getattr(os, name), what))
        patch.setattr(os, "fsync", self._fsync(os.fsync))

    def _one(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def record_call(path: Any, *arguments: Any, **options: Any) -> Any:
            with self._lock:
                result = call(path, *arguments, **options)
                self._note(what, path)
                return result

        return record_call

    def _two(self, call: Callable[..., Any], what: str) -> Callable[..., Any]:
        def record_call(path: Any, target: Any, *arguments: Any, **options: Any) -> Any:
            with self._lock:
                result = call(path, target, *arguments, **options)
                self._note(what, path, target)
                return result

        return record_call

    def _fsync(self, call: Callable[[int], None]) -> Callable[[int], None]:
        def record_call(descriptor: int) -> None:
            with self._lock:
                call(descriptor)
                path = Path(f"/proc/self/fd/{descriptor}").readlink()
                self._note("flushed", path, content=None if path.is_dir() else path.read_bytes())

        return record_call

    def _note(self, what: str, path: Any, target: Any = None, content: bytes | None = None) -> None:
        if Path(path).is_relative_to(self.root):
            self.calls.append(
                Call(what, self._relative_path(path), self._relative_path(target) if target else "", content)
            )

    def _relative_path(self, path: Any) -> str:
        relative_path = str(Path(path).relative_to(self.root))
        return "" if relative_path == "." else relative_path


@contextmanager
def recording(root: Path) -> Iterator[Recording]:
    """Record what is done below ``root`` meanwhile; at the end all that is there was recorded, or it raises."""
    own_recording = Recording(root)
    with pytest.MonkeyPatch.context() as patch:
        own_recording.patch(patch)
        yield own_recording
    disk = Disk(own_recording.tree_before)
    for call in own_recording.calls:
        disk.do(call)
    assert disk.visible_tree() == read_tree(root), "something was written that was not flushed, or not recorded"
