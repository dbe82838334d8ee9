"""Object stores: where a deployment keeps all that it keeps.

What belongs here: the port of stores, what it returns and raises, and how a scheme of URIs is made known.

To bring a store, write a class with the methods of ``ObjectStore`` and a ``StoreScheme`` that opens it. Declare the
scheme under its name, and users write ``HEADRACE_ROOT=name://...``::

    [project.entry-points."headrace.stores"]
    name = "my_package.my_scheme:SCHEME"

Schemes are imported to list them, so the module of a scheme imports no client. If the module of the class does, the
scheme names its place: ``StoreScheme("name://bucket", "my_package.my_store:MyStore")``.

**Order of calls.** ``StoreScheme.open`` is called in each process that needs the root, and may be called often: it
makes no request. After that any method may be called, from many threads at once, in any order. Nothing is closed.

**What is guaranteed.** A path that is handed to a method is one that ``check_path`` lets pass, except where a person
typed it. Objects are small (manifests, log entries) or up to some hundred megabytes (Parquet files), and are read
whole or by range. Headrace deletes only what nothing names any more.

**What a store guarantees.** After a method has returned, every process sees its effect: later readers get the new
content, and listings have the new name. An object is whole or absent. Exactly one of many concurrent calls of
``create`` for one path succeeds, also across machines: all fencing of writers rests on that. A store that may lose the
answer to ``create`` says ``UnknownOutcomeError``, and does not try again by itself.

Example::

    import hashlib

    from headrace.ext.stores import ObjectExistsError, ObjectInfo, ObjectNotFoundError, ObjectStore, RequestCounts
    from headrace.ext.stores import StoreScheme, check_path, sort_key


    class DictStore:
        def __init__(self, uri):
            self.uri, self.requests, self._objects = uri, RequestCounts(), {}

        def read(self, path):
            self.requests.add("get")
            if path not in self._objects:
                raise ObjectNotFoundError(f"there is no object {self.uri}/{path}")
            return self._objects[path]

        def read_same(self, info):
            return self.read(info.path)  # content never changes here but by write, which changes the ETag

        def read_range(self, path, start, length):
            return self.read(path)[start : start + length]

        def stat(self, path):
            data = self.read(path)
            return ObjectInfo(path, len(data), hashlib.sha256(data).hexdigest())

        def digested(self, path):
            return None  # an ETag that is made of the content serves as a digest

        def write(self, path, data):
            self.requests.add("put")
            self._objects[check_path(path)] = data
            return self.stat(path)

        def create(self, path, data):
            self.requests.add("create")
            if self._objects.setdefault(check_path(path), data) is not data:  # atomic: one dict operation
                raise ObjectExistsError(f"{self.uri}/{path} exists already")
            return self.stat(path)

        def list(self, prefix, start_after=""):
            self.requests.add("list")
            for path in sorted(self._objects, key=sort_key):
                if path.startswith(prefix) and sort_key(path) > sort_key(start_after):
                    yield self.stat(path)

        def delete(self, path):
            self.requests.add("delete")
            self._objects.pop(path, None)


    SCHEME = StoreScheme("dict://name", DictStore, is_shared=False)

    store: ObjectStore = SCHEME.open("dict://here")
    store.write("a/1.json", b"{}")
    assert [found.path for found in store.list("a/")] == ["a/1.json"]
"""

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol, TypeVar

from headrace.errors import FixConfigError, GiveUpError, RestoreError, RetryError
from headrace.installed import BrokenEntryPointError, EntryPointGroup, import_callable

__all__ = [
    "KINDS",
    "ObjectChangedError",
    "ObjectExistsError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectPathError",
    "ObjectStore",
    "RequestCounts",
    "StoreScheme",
    "StoreUnavailableError",
    "UnknownOutcomeError",
    "check_path",
    "is_there",
    "open_store",
    "scheme_of",
    "sort_key",
]

A = TypeVar("A")
B = TypeVar("B")

KINDS = ("get", "put", "create", "list", "stat", "delete")
"""Kinds of requests that a store counts; a listing counts one per page."""


class ObjectPathError(FixConfigError, code="config.object_path"):
    """A path that could leave the root, or that some store could not hold."""


class ObjectNotFoundError(RestoreError, code="restore.object_not_found"):
    """There is no such object. The caller knows whether that is normal or the loss of something that was stored."""


class ObjectChangedError(RetryError, code="retry.object_changed"):
    """An object is not what it was when somebody looked at it, or does not stay what it is while it is looked at."""


class ObjectExistsError(GiveUpError, code="give_up.object_exists"):
    """``create`` found an object under that path: another writer's, or one's own whose answer was lost."""


class UnknownOutcomeError(RetryError, code="retry.unknown_outcome"):
    """A conditional put may or may not have happened: read the object back and compare before anything else."""


class StoreUnavailableError(RetryError, code="retry.store_unavailable"):
    """The store could not be reached or answered that it is busy, after the adapter's own retries."""


class EncryptionRefusedError(FixConfigError, code="config.encryption"):
    """The S3 service cannot or may not encrypt as it is asked to, or demands that it is asked."""


class S3KeysError(FixConfigError, code="config.s3_keys"):
    """There are no keys for S3, or what should give them refuses."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object at ``path``, relative to the root: ``size`` in bytes; ``etag`` changes whenever the content does (and
    maybe when it does not).

    How often it changes without the content is the store's affair: see ``ObjectStore.digested``, which alone gives the
    ``digest``, a fast hash of the whole content. ``modified`` is when the store last had it written, in microseconds
    since 1970 UTC; a listing has it where that costs no request more, None elsewhere.
    """

    path: str
    size: int
    etag: str
    digest: str | None = None
    modified: int | None = field(default=None, compare=False)


class RequestCounts:
    """How many requests of each kind a store has made, retries included. Thread-safe."""

    kinds: ClassVar[tuple[str, ...]] = KINDS

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> None:
        """Count one request. It raises nothing.

        :param kind: one of ``KINDS``.
        """
        with self._lock:
            self._counts[kind] += 1

    def snapshot(self) -> dict[str, int]:
        """Tell what was counted so far. It raises nothing.

        :returns: every kind and its count.
        """
        with self._lock:
            return {kind: self._counts[kind] for kind in self.kinds}

    def since(self, previous: Mapping[str, int]) -> dict[str, int]:
        """Tell what was counted since an earlier snapshot. It raises nothing.

        :param previous: what ``snapshot`` gave then.
        :returns: every kind and how many requests were made after it.
        """
        return {kind: count - previous.get(kind, 0) for kind, count in self.snapshot().items()}


class ObjectStore(Protocol):
    """A flat map from paths to immutable or replaceable bytes, with one conditional operation: ``create``.

    A path is relative to the root of the deployment and ``/``-separated. Every operation may be called from many
    threads. Any of them may raise StoreUnavailableError, FixConfigError (credentials, bucket, permissions) or
    ObjectPathError; what else it raises it says.

    ``lists_in_pages`` is an attribute that a store may have. True says that a listing comes in pages, a request for
    each. So two of its ranges can be asked for at once. It is taken for a store that is asked over a network.

    ``folders_in(folder: str) -> Sequence[str]`` is a method that a store may have. It gives the names of the folders in
    one (``""`` or a path that ends in a slash), in order, without slashes, in few requests. Without it there is a
    listing for each.
    """

    @property
    def uri(self) -> str:
        """The address of the root. It raises nothing.

        :returns: a text that ``open_store`` takes; it holds no secret.
        """

    @property
    def requests(self) -> RequestCounts:
        """The requests made so far through this object. It raises nothing.

        :returns: the same object each time.
        """

    def read(self, path: str) -> bytes:
        """Read an object.

        :param path: its path.
        :returns: its whole content.
        :raises ObjectNotFoundError: there is none.
        """

    def read_same(self, info: ObjectInfo) -> bytes:
        """Read an object if it still is what it was, in one request.

        :param info: what ``stat``, ``digested``, ``write`` or a listing said of it; its digest counts or, where it has
            none, its ETag.
        :returns: its whole content.
        :raises ObjectNotFoundError: there is none any more.
        :raises ObjectChangedError: it has another content now.
        """

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part of an object.

        :param path: its path.
        :param start: the number of the first byte, from 0.
        :param length: how many bytes.
        :returns: the bytes; fewer where the object ends before.
        :raises ObjectNotFoundError: there is none.
        """

    def stat(self, path: str) -> ObjectInfo:
        """Look at an object without reading it.

        :param path: its path.
        :returns: its size and its ETag.
        :raises ObjectNotFoundError: there is none.
        """

    def digested(self, path: str) -> ObjectInfo | None:
        """Look at an object whose ETag may change though its content does not, as that of a copied local file.

        :param path: its path.
        :returns: its size, its ETag and a digest of its content, all of one moment; None where ETags serve as digests.
        :raises ObjectNotFoundError: there is none.
        :raises ObjectChangedError: it changes each time that it is looked at.
        """

    def write(self, path: str, data: bytes) -> ObjectInfo:
        """Put an object, whole or not at all, in the place of one that is there.

        :param path: its path.
        :param data: its content.
        :returns: its size and its ETag.
        :raises StoreUnavailableError: it may or may not have been put; putting it again does no harm.
        """

    def create(self, path: str, data: bytes) -> ObjectInfo:
        """Put an object if nothing is there; exactly one of many concurrent calls for one path succeeds.

        :param path: its path.
        :param data: its content.
        :returns: its size and its ETag.
        :raises ObjectExistsError: something is there, and stays as it is.
        :raises UnknownOutcomeError: the answer was lost; the caller reads the object back.
        """

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """List objects in the order of their paths as UTF-8 bytes (``sort_key``).

        :param prefix: how their paths begin: any text, not only whole folders.
        :param start_after: only paths that sort after it.
        :returns: each object that was there all the time; one that comes or goes meanwhile may be among them.
        :raises StoreUnavailableError: while it is iterated, too.
        """

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens when it is absent.

        :param path: its path.
        :raises StoreUnavailableError: it may or may not be gone.
        """


@dataclass(frozen=True)
class _OpenerAt:
    """Opens stores by what ``place`` names, which is imported when the first of them is opened."""

    place: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w+(\.\w+)*:\w+", self.place):
            raise BrokenEntryPointError(f"{self.place!r} is no place of what opens a store: write it as 'module:Class'")

    def __call__(self, uri: str) -> ObjectStore:
        store: ObjectStore = import_callable(self.place, shown(uri))(uri)
        return store


@dataclass(frozen=True, init=False)
class StoreScheme:
    """What is to be known of a kind of store beside the port: how to open one, and from where it can be reached.

    ``form`` is how users write a root of it ("s3://bucket/prefix"). ``open`` gives the store of such a URI, which it
    may refuse with a FixConfigError that does not show what stands before an @; it makes no request. A text
    ("module:Class") is the place of what opens the store: it is imported when a root is opened. ``is_shared``: other
    processes see what this one writes. ``variables`` are the beginnings of the names of environment variables that say
    how to reach it (one text, or several). Tasks on other machines get them, users' code that explains windows does
    not. Airflow's connection of a root may have them by name in its field "extra". ``secrets``: the names of those
    whose values no text may show.
    """

    form: str
    open: "Callable[[str], ObjectStore]"
    is_shared: bool = True
    variables: str | tuple[str, ...] | None = None
    secrets: tuple[str, ...] = ()

    def __init__(
        self,
        form: str,
        open: "Callable[[str], ObjectStore] | str",  # noqa: A002 - the name of the field
        is_shared: bool = True,
        variables: str | tuple[str, ...] | None = None,
        secrets: tuple[str, ...] = (),
    ) -> None:
        if isinstance(open, str):
            open = _OpenerAt(open)  # noqa: A001
        for name, value in zip(self.__match_args__, (form, open, is_shared, variables, secrets), strict=True):
            object.__setattr__(self, name, value)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Give ``variables`` as several texts. It raises nothing.

        :returns: how names of its variables begin; none if it has none.
        """
        return (
            () if self.variables is None else (self.variables,) if isinstance(self.variables, str) else self.variables
        )

    def settings(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Choose what a process elsewhere needs to reach the store. It raises nothing.

        :param environment: the variables of this process.
        :returns: those that begin as ``variables`` says.
        """
        prefix = self.variables
        return {} if prefix is None else {n: value for n, value in environment.items() if n.startswith(prefix)}


_variables: ContextVar[Mapping[str, str] | None] = ContextVar("store_variables", default=None)


def store_variables() -> Mapping[str, str]:
    """The variables that say how to reach a store: the environment, or what ``reached_by`` says instead."""
    variables = _variables.get()
    return os.environ if variables is None else variables


@contextmanager
def reached_by(variables: Mapping[str, str]) -> Iterator[None]:
    """Stores that this thread opens inside take ``variables`` instead of the environment, which stays as it is."""
    token = _variables.set(variables)
    try:
        yield
    finally:
        _variables.reset(token)


SCHEMES: Final[EntryPointGroup[StoreScheme]] = EntryPointGroup("headrace.stores", "store scheme")
"""Schemes by name: Headrace's own, and those of other distributions."""


def open_store(uri: str) -> ObjectStore:
    """Open the store of a root; it makes no request.

    :param uri: ``file:///folder``, ``s3://bucket/prefix``, ``memory://name``, or a URI of a scheme that another
        distribution brings.
    :returns: the store.
    :raises FixConfigError: nobody has that scheme, or the environment lacks what it needs.
    """
    return scheme_of(uri).open(uri)


def scheme_of(uri: str) -> StoreScheme:
    """Find the kind of store that a URI is the root of.

    :param uri: as ``open_store`` takes it.
    :returns: the scheme.
    :raises FixConfigError: nobody has that scheme; the error shows no secret.
    """
    # No URL parser: a path or key may hold any character, '#' and '?' too.
    scheme, separator, _ = uri.partition("://")
    store_scheme = SCHEMES.get(scheme) if separator else None
    if store_scheme is None:
        forms = [known_scheme.form for name in SCHEMES.names() if (known_scheme := SCHEMES.get(name)) is not None]
        raise FixConfigError(f"{shown(uri)!r} is not a root of a store: use {', '.join(forms[:-1])} or {forms[-1]}")
    return store_scheme


def shown(uri: str) -> str:
    """Hide what may be a user and a secret in a URI. It raises nothing.

    :param uri: any text.
    :returns: the text as a message may have it.
    """
    return re.sub(r"://.*@", "://...@", uri)


def is_there(store: ObjectStore, path: str) -> bool:
    """Ask whether a store has an object: one request, which reads nothing of it.

    :param store: the store.
    :param path: the object's path.
    :returns: whether it is there.
    :raises StoreUnavailableError: nobody can tell.
    """
    try:
        store.stat(path)
    except ObjectNotFoundError:
        return False
    return True


def lists_in_pages(store: ObjectStore) -> bool:
    """Ask whether a store gives a listing in pages, so that two of its ranges can be asked for at once. It raises
    nothing.

    :param store: the store.
    :returns: its attribute ``lists_in_pages``, False without one: it walks a folder, whose names it sees together.
    """
    return bool(getattr(store, "lists_in_pages", False))


def do_both(store: ObjectStore, first: Callable[[], A], second: Callable[[], B]) -> tuple[A, B]:
    """Make two requests that do not wait for each other: at once where a store gives listings in pages, so is asked
    over a network; one after the other on a disk, where a thread costs more than it saves.

    :param store: the store that both ask.
    :param first: the one whose error counts if both raise one.
    :param second: the other.
    :returns: what each returned.
    :raises Exception: what they raise, once both have ended.
    """
    if not lists_in_pages(store):
        return first(), second()
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as thread:
        future = thread.submit(second)
        return first(), future.result()


def do_all(store: ObjectStore, request: Callable[[A], B], items: Sequence[A], at_once: int = 8) -> list[B]:
    """Make requests that do not wait for each other: several at once where ``do_both`` does, else in turn.

    :param store: the store that all of them ask.
    :param request: makes one.
    :param items: what it is called with.
    :param at_once: at most so many are under way together.
    :returns: what it returned of each.
    :raises Exception: what it raises of the first that fails.
    """
    if len(items) < 2 or not lists_in_pages(store):  # one waits for nothing
        return [*map(request, items)]
    with ThreadPoolExecutor(min(at_once, len(items)), thread_name_prefix="beside") as threads:
        return [*threads.map(request, items)]


def folders_in(store: ObjectStore, folder: str = "") -> list[str]:
    """List the folders in a folder of a store.

    :param store: the store.
    :param folder: the path of the folder, with a slash at its end; the root by default.
    :returns: their names, in order.
    :raises StoreUnavailableError: nobody can tell.
    """
    if (own_way := getattr(store, "folders_in", None)) is not None:
        return [*own_way(folder)]
    return [name.removesuffix("/") for name in names_in(store, folder) if name.endswith("/")]


def names_in(store: ObjectStore, folder: str) -> Iterator[str]:
    """List what is in a folder of a store, with a listing for each name that is asked for.

    :param store: the store.
    :param folder: the path of the folder, with a slash at its end; "" is the root.
    :returns: the names, in order, those of folders with a slash at their end.
    :raises StoreUnavailableError: nobody can tell.
    """
    last_path = ""
    while (first := next(iter(store.list(folder, last_path)), None)) is not None:
        name, slash, _ = first.path.removeprefix(folder).partition("/")
        yield f"{name}{slash}"
        last_path = f"{folder}{name}/\U0010ffff" if slash else first.path


def check_path(path: str) -> str:
    """Hold a path to what every store can hold under its root.

    :param path: the path.
    :returns: the path.
    :raises ObjectPathError: it has empty names, ``.``, ``..`` or a zero byte.
    """
    parts = path.split("/")
    if "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise ObjectPathError(
            f"{path!r} is not an object path: use non-empty names separated by single slashes, without '.' and '..'"
        )
    return path


def sort_key(path: str) -> bytes:
    """Give the order of listings; names that are not valid UTF-8 keep their bytes. It raises nothing.

    :param path: a path.
    :returns: what it sorts by.
    """
    return path.encode("utf-8", "surrogateescape")
