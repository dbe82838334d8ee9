"""Names and paths of modules in strings, documents and contracts."""

import re
from collections.abc import Mapping
from pathlib import Path

from scripts.rehouse.checkout import BASES

SCRIPTS = ("scripts", "tests", "benchmarks")


class Texts:
    """Replaces what names a moved module: ``a.b.c``, ``jobs/a/b/c``, and in code spans of documents ``b/c``."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self.modules = dict(places)
        self.paths = _paths(places)
        self.ends = _ends(places)
        self.wholes = {_below_package(module): _below_package(target) for module, target in places.items()}
        self._module = _one_of(self.modules, r"(?<![\w.])", r"(?!\w)")
        self._path = _one_of(self.paths, r"(?<![\w/])", r"(?!\w)")
        self._end = _one_of(self.ends, r"(?<![\w/.])", r"(?![\w/])") if self.ends else None

    def names(self, text: str) -> bool:
        """Whether the text may name a moved module."""
        return any(module in text or module.rpartition(".")[0] in text for module in self.modules)

    def replace(self, text: str, file: Path) -> str:
        """``text`` of a file, whose path begins at the root of the checkout, after the plan."""
        text = self._module.sub(lambda match: self.modules[match.group(1)], text)
        text = self._path.sub(lambda match: self.paths[match.group(1)], text)
        if file.suffix == ".md":
            text = re.sub(r"`[^`\n]+`", self._replace_ends, text)
        if file.suffix == ".py":
            if file.parts[0] in SCRIPTS:
                text = re.sub(r'"((?:[a-z_0-9]+/)+[a-z_0-9]+)\.py"', self._replace_whole, text)
            text = re.sub(r"``?[^`\n]+``?", self._replace_ends, text)
            if file.parts[0] != "tests":
                text = re.sub(r"(?<=[\s(])((?:[a-z_]+/)+[a-z_]+)(?=[\s),.;:])", self._replace_ends, text)
        return text

    def _replace_ends(self, quoted: re.Match[str]) -> str:
        text = quoted.group(0)
        return self._end.sub(lambda match: self.ends[match.group(1)], text) if self._end else text

    def _replace_whole(self, quoted: re.Match[str]) -> str:
        path = quoted.group(1)
        return f'"{self.wholes[path]}.py"' if path in self.wholes else quoted.group(0)


def _one_of(names: Mapping[str, str], before: str, after: str) -> re.Pattern[str]:
    """Any of ``names``, the longest first."""
    parts = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(f"{before}({parts}){after}")


def _below_package(module: str) -> str:
    return "/".join(module.split(".")[1:])


def _paths(places: Mapping[str, str]) -> dict[str, str]:
    """Paths without ``.py``, from the root of the checkout and from the folder on ``sys.path``."""
    paths = {}
    for module, target in places.items():
        old, new = module.replace(".", "/"), target.replace(".", "/")
        paths[f"{BASES[module.split('.')[0]]}/{old}"] = f"{BASES[target.split('.')[0]]}/{new}"
        paths[old] = new
    return paths


def _ends(places: Mapping[str, str]) -> dict[str, str]:
    """Ends of paths, of two parts or more, that only one module has."""
    ends: dict[str, set[str]] = {}
    for module, target in places.items():
        old, new = module.split(".")[1:], target.split(".")[1:]
        for first in range(len(old) - 1):
            end = new[first:] if old[:first] == new[:first] else new
            ends.setdefault("/".join(old[first:]), set()).add("/".join(end))
    return {old: new.pop() for old, new in ends.items() if len(new) == 1}
