"""The file in which several roots are declared, and what can be wrong with it.

It is TOML, not Python: the API server reads it, too, and runs no code of users. A root that cannot be used takes
nothing away from the others.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.errors import FixConfigError
from headrace.ext.stores import SCHEMES, shown
from headrace.model.suggestions import did_you_mean
from headrace.pipeline.loading.registry import PipelineFolders
from headrace_airflow.roots.root import Root

_TABLE: Final = "root"
_NAME: Final = re.compile("[a-z][a-z0-9_]{0,30}")
_TEXTS: Final = ("name", "uri", "store", "endpoint", "airflow")
_KEYS: Final = (*_TEXTS, "pipelines")


class RootsFileError(FixConfigError, code="config.roots"):
    """The file that declares roots cannot be used, or one of its roots."""


def declared_in(file: Path) -> Iterator[Root | RootsFileError]:
    """Each root of ``file``, or what is wrong with it. Raises RootsFileError for a file that cannot be read."""
    import tomllib  # most deployments declare none

    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RootsFileError(f"{file} declares roots and cannot be read: {reason}") from error
    if unknown := [name for name in tables if name != _TABLE]:
        raise RootsFileError(f"{file}: {unknown[0]} is nothing that Headrace knows: begin each root with [[{_TABLE}]]")
    entries = tables.get(_TABLE, [])
    if not isinstance(entries, list):
        raise RootsFileError(f"{file}: begin each root with [[{_TABLE}]], in two brackets")
    for number, entry in enumerate(entries, 1):
        try:
            yield _root(entry, f"{file}: root {number}", file)
        except RootsFileError as error:
            yield error


def _root(entry: Mapping[str, Any], where: str, file: Path) -> Root:
    for key, value in entry.items():
        if key not in _KEYS:
            raise RootsFileError(
                f"{where} has {key!r}, which Headrace does not know; {did_you_mean(key, _KEYS)}it takes "
                f"{', '.join(_KEYS)}"
            )
        if key in _TEXTS and not (isinstance(value, str) and value):
            raise RootsFileError(f"{where}: {key} is no text: write it in quotes, or leave it out")
    name, uri, folders = entry.get("name", ""), entry.get("uri", ""), entry.get("pipelines")
    if not _NAME.fullmatch(name):
        raise RootsFileError(
            f"{where} has the name {name!r}: write lower case letters, digits and _, at most 31, starting with a letter"
        )
    where = f"{where} ({name})"
    if "://" not in uri or uri.partition("://")[0] not in SCHEMES:
        forms = " or ".join(SCHEMES[scheme].form for scheme in SCHEMES.built_in if SCHEMES[scheme].is_shared)
        raise RootsFileError(f"{where} has the uri {shown(uri)!r}: write {forms}")
    if not (isinstance(folders, list) and folders and all(isinstance(one, str) and one for one in folders)):
        raise RootsFileError(f'{where}: pipelines names no folders: write pipelines = ["sales"]')
    beside = file.absolute().parent
    defaults = str(beside / entry["airflow"]) if "airflow" in entry else ""
    searched = PipelineFolders(tuple(beside / folder for folder in folders), where)
    endpoint = entry.get("endpoint", "").rstrip("/")
    return Root(name, uri, searched, entry.get("store", ""), endpoint, defaults)
