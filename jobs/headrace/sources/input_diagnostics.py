"""What lies where a run looked for input and found none: the words that tell a typing mistake from an empty landing."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headrace.sources.file_planning import LEFT_OUT
from headrace_snapshots.store import LocalStore, ObjectStore

SHOWN = 5


def exists(store: ObjectStore) -> bool:
    """Whether there is a root: a local folder, or anything under a prefix."""
    if isinstance(store, LocalStore):
        return store.root.is_dir()
    return next(iter(store.list("")), None) is not None


def around(store: ObjectStore) -> str:
    """What there is instead of a root that does not exist."""
    if not isinstance(store, LocalStore):
        return "nothing lies under it"
    there = next(folder for folder in store.root.parents if folder.is_dir())
    return _holding(str(there), [f"{path.name}/" if path.is_dir() else path.name for path in _some(there)])


def instead_of_input(store: ObjectStore, prefix: str, suffixes: tuple[str, ...]) -> str:
    """Why there are no files, though there never was one: the prefix, and what is in it or around it."""
    folder = f"{prefix}/" if prefix else ""
    where = f"{store.uri.rstrip('/')}/{folder}"
    if there := [*islice(store.list(folder), SHOWN)]:
        such = ", ".join(info.path.removeprefix(folder) for info in there)
        return f"no file under {where} is input, such as {such}: {_taken(suffixes)}"
    if not exists(store):
        return f"{where} does not exist; {around(store)}"
    above = folder
    while above:
        above = above.rstrip("/").rpartition("/")[0]
        above = f"{above}/" if above else ""
        if names := [*islice(children(store, above), SHOWN + 1)]:  # one more than are shown
            return f"nothing lies under {where}; " + _holding(f"{store.uri}/{above}", names)
    return f"nothing lies under {where}"


def _taken(suffixes: tuple[str, ...]) -> str:
    if suffixes:
        return f"names must end in {' or '.join(suffixes)}, and those that begin with _ or . are left out"
    return LEFT_OUT


def _holding(where: str, names: list[str]) -> str:
    if not names:
        return f"{where} is empty"
    more = ", ..." if len(names) > SHOWN else ""
    return f"{where} holds {', '.join(names[:SHOWN])}{more}"


def _some(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())[: SHOWN + 1]


def children(store: ObjectStore, folder: str) -> Iterator[str]:
    """The names in ``folder`` (those of folders with a slash at their end), in order; a listing for each."""
    after = ""
    while (first := next(iter(store.list(folder, after)), None)) is not None:
        name, slash, _ = first.path.removeprefix(folder).partition("/")
        yield f"{name}{slash}"
        after = f"{folder}{name}/\U0010ffff" if slash else first.path
