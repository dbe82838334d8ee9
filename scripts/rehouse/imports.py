"""Imports of moved modules in files that stay, and in functions of files that move."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.rehouse.joining import Renamed
from scripts.rehouse.names import import_statement, rename_global, replace_spans


@dataclass
class Rewriting:
    """The imports of one file after a plan: ``places`` of modules, ``renamed`` names."""

    where: str
    places: Mapping[str, str]
    renamed: Renamed
    problems: list[str] = field(default_factory=list)
    modules: list[tuple[str, str]] = field(default_factory=list)
    """Names to which a module was bound, and its new ones."""
    symbols: list[tuple[str, str]] = field(default_factory=list)

    def rewrite(self, text: str, joined: bool = False) -> str:
        """``text`` with its imports rewritten. ``joined``: those of the top level are right already."""
        tree, lines = ast.parse(text), text.splitlines(keepends=True)
        skipped = _top_level(tree) if joined else set()
        edits = []
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level and id(node) not in skipped:
                groups = self._groups(node, node.module)
                if groups is not None:
                    before = lines[node.lineno - 1][: node.col_offset].strip()
                    edits.append((node.lineno, node.end_lineno, self._statements(node, groups, lines), before))
        for old, new in self.symbols:
            text = rename_global(text, old, new, self.where, imports=True)
        lines = text.splitlines(keepends=True)
        for begin, end, new, before in sorted(edits, reverse=True):
            if before:
                self.problems.append(f"{self.where}:{begin}: import behind a statement")
            else:
                lines[begin - 1 : end] = [new]
        text = "".join(lines)
        for old, new in self.modules:
            text = self._rename_module(text, old, new)
        return text

    def _groups(self, node: ast.ImportFrom, source: str) -> dict[str, list[tuple[str, str | None]]] | None:
        """What is imported from each module after the plan; None where nothing changes."""
        groups: defaultdict[str, list[tuple[str, str | None]]] = defaultdict(list)
        moved = source in self.places
        for alias in node.names:
            name, asname, home = alias.name, alias.asname, self.places.get(source, source)
            if f"{source}.{name}" in self.places:
                moved = True
                home, _, name = self.places[f"{source}.{name}"].rpartition(".")
                if asname is None and name != alias.name:
                    self.modules.append((alias.name, name))
            elif source in self.places:
                name = self.renamed.get((source, alias.name), alias.name)
                if name != alias.name and asname is None:
                    if node.col_offset == 0:
                        self.symbols.append((alias.name, name))
                    else:
                        asname = alias.name
            groups[home].append((name, asname))
        return groups if moved else None

    def _statements(
        self, node: ast.ImportFrom, groups: dict[str, list[tuple[str, str | None]]], lines: list[str]
    ) -> str:
        """The statements for what one imported before, with its comment."""
        comments = re.findall(r"#.*$", "".join(lines[node.lineno - 1 : node.end_lineno]), re.MULTILINE)
        end = (f"  {comments[0]}" if comments else "") + "\n"
        stub = self.where.endswith(".pyi")
        indent = " " * node.col_offset
        return "".join(indent + import_statement(module, names, stub) + end for module, names in groups.items())

    def _rename_module(self, text: str, old: str, new: str) -> str:
        """The name to which a module is bound, in functions too."""
        spans = []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id == old:
                spans.append((node.lineno, node.col_offset, node.col_offset + len(old), new))
            stored = isinstance(node, ast.Name) and node.id == old and isinstance(node.ctx, ast.Store)
            if stored or (isinstance(node, ast.arg) and node.arg == old):
                self.problems.append(f"{self.where}: {old} is a module and a variable")
        return replace_spans(text, spans)


def _top_level(tree: ast.Module) -> set[int]:
    """The statements of the top level, and those for types."""
    inner = [statement for node in tree.body if isinstance(node, ast.If) for statement in node.body]
    return {id(node) for node in [*tree.body, *inner]}
