"""YAML whose every value knows its line, so that a mistake in it can be pointed at.

Scalars are those of YAML 1.2: ``13:00``, ``NO`` and ``2013-01-01`` are text.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from headrace.model.arguments import did_you_mean, shown
from headrace.testing.steps import UnitTestError

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Only what YAML 1.2 says of scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_pattern})$"), _first)


Mistakes = list[UnitTestError]


@dataclass(frozen=True)
class DocumentNode:
    """A value of a document: a scalar, a list of nodes, or nodes by name; and the line in ``file`` where it begins,
    or its name does. ``broken``: what in it is YAML, and means nothing.

    Methods that are given a list of ``mistakes`` add theirs to it, and give what is left; without, they raise the
    first as UnitTestError.
    """

    file: Path
    line: int
    value: Any
    broken: tuple[UnitTestError, ...] = ()

    def error(self, why: str) -> UnitTestError:
        """A mistake here."""
        return UnitTestError(f"{self.file}:{self.line}: {why}")

    def all_broken(self) -> "Iterator[UnitTestError]":
        """What is broken here and below."""
        yield from self.broken
        below = self.value.values() if isinstance(self.value, dict) else self.value
        for child in below if isinstance(self.value, dict | list) else ():
            yield from child.all_broken()

    def fields(self, what: str, known: Iterable[str], mistakes: Mistakes | None = None) -> dict[str, "DocumentNode"]:
        """Nodes by name, all of them ``known``."""
        names = list(known)
        if not isinstance(self.value, dict):
            _note(self.error(f"{what} is {self._shown()}; write a mapping with some of {', '.join(names)}"), mistakes)
            return {}
        for name, child in self.value.items():
            if name not in names:
                hint = did_you_mean(name, names)
                _note(child.error(f"{what} has no {name!r}; {hint}it has {', '.join(names)}"), mistakes)
        return {name: child for name, child in self.value.items() if name in names}

    def items(self, what: str, mistakes: Mistakes | None = None) -> list["DocumentNode"]:
        """Nodes in a list."""
        if not isinstance(self.value, list):
            why = f"{what}: {self._shown()} is not a list; write its items below each other, each after `- `"
            _note(self.error(why), mistakes)
            return []
        return list(self.value)

    def text(self, what: str) -> str:
        """A text that is not empty. Raises UnitTestError."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"{what} is {self._shown()}; write a text")
        return self.value

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: child.plain() for name, child in self.value.items()}
        return [child.plain() for child in self.value] if isinstance(self.value, list) else self.value

    def _shown(self) -> str:
        return shown(self.plain())


def read(file: Path) -> DocumentNode:
    """The document in ``file``. Raises UnitTestError, naming the line, if it is not one YAML document."""
    try:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=_Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UnitTestError(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise UnitTestError(f"{file}{line}: not YAML: {getattr(error, 'problem', None) or error}") from error
    if root is None:
        return DocumentNode(file, 1, None)
    return _node(file, root)


def _note(mistake: UnitTestError, mistakes: Mistakes | None) -> None:
    if mistakes is None:
        raise mistake
    mistakes.append(mistake)


def _node(file: Path, node: yaml.Node) -> DocumentNode:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return DocumentNode(file, line, [_node(file, child) for child in node.value])
    if isinstance(node, yaml.MappingNode):
        broken: Mistakes = []
        return DocumentNode(file, line, dict(_pairs(file, node, broken)), tuple(broken))
    return DocumentNode(file, line, _scalar(node))


def _pairs(file: Path, mapping: yaml.MappingNode, broken: Mistakes) -> Iterator[tuple[str, DocumentNode]]:
    seen: set[str] = set()
    for key, value in mapping.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            broken.append(UnitTestError(f"{file}:{line}: a name is a text, not a list or a mapping"))
        elif key.value in seen:
            broken.append(UnitTestError(f"{file}:{line}: {key.value!r} stands here twice"))
        else:
            seen.add(key.value)
            node = _node(file, value)
            yield key.value, DocumentNode(file, line, node.value, node.broken)


def _scalar(scalar: yaml.Node) -> Any:
    text: str = scalar.value
    match scalar.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return text
