"""A module in pieces: its docstring, imports, imports for types alone, and the rest of its text."""

import ast
import re
from pathlib import Path

from scripts.rehouse.names import import_statement, is_for_types, rename_global, replace_spans

Imports = ast.Import | ast.ImportFrom
Defined = dict[str, ast.stmt]


class Pieces:
    """A module that a plan joins. Its text may be changed before it is taken."""

    def __init__(self, module: str, file: Path) -> None:
        self.module = module
        self.take_text(file.read_text(encoding="utf-8"))

    def take_text(self, text: str) -> None:
        """Divides ``text``; the module has it from now on."""
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        self.doc = ast.get_docstring(self.tree, clean=False)
        self.imports: list[Imports] = []
        self.typing: list[Imports] = []
        dropped: set[int] = set()
        for node in self.tree.body:
            is_doc = self.doc is not None and node is self.tree.body[0]
            if is_doc or self._is_import(node):
                dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        kept = (line for number, line in enumerate(self.lines, 1) if number not in dropped)
        body = "".join(kept).strip("\n") + "\n"
        self.body = body if body.strip() else ""

    def _is_import(self, node: ast.stmt) -> bool:
        """Keeps an import with its kind."""
        if isinstance(node, Imports):
            self.imports.append(node)
            return True
        if isinstance(node, ast.If) and is_for_types(node) and not node.orelse:
            inner = [statement for statement in node.body if isinstance(statement, Imports)]
            if len(inner) == len(node.body):
                self.typing += inner
                return True
        return False

    def comment_of(self, node: ast.stmt) -> str:
        """The comment at the end of a statement, or of its first line."""
        for number in (node.end_lineno or node.lineno, node.lineno):
            if comment := re.search(r"#.*$", self.lines[number - 1].rstrip("\n")):
                return comment.group(0)
        return ""

    def names(self) -> Defined:
        """The statement that defines each name of the top level."""
        names: Defined = {}
        for node in self.tree.body:
            names |= dict.fromkeys(_defined_by(node), node)
        return names

    def rename(self, old: str, new: str, imports: bool = False) -> None:
        """The global name ``old`` is ``new`` from now on."""
        self.take_text(rename_global(self.text, old, new, self.module, imports))

    def alias_import(self, old: str, new: str) -> bool:
        """An import of the top level binds ``new`` instead of ``old``. False: there is none."""

        def bound(alias: ast.alias) -> str:
            return alias.asname or alias.name

        nodes = [node for node in [*self.imports, *self.typing] if isinstance(node, ast.ImportFrom)]
        hits = [node for node in nodes if any(bound(alias) == old for alias in node.names)]
        lines = rename_global(self.text, old, new, self.module, imports=True).splitlines(keepends=True)
        for node in hits:
            names = [(alias.name, new if bound(alias) == old else alias.asname) for alias in node.names]
            statement = " " * node.col_offset + import_statement(node.module, names) + "\n"
            end = node.end_lineno or node.lineno
            lines[node.lineno - 1 : end] = [statement] + [""] * (end - node.lineno)
        if hits:
            self.take_text("".join(lines))
        return bool(hits)

    def remove(self, name: str) -> None:
        """A definition goes that another module has too, with the docstring that follows it."""
        node, body = self.names()[name], self.tree.body
        after = body[body.index(node) + 1 : body.index(node) + 2]
        end = node.end_lineno
        if isinstance(node, ast.Assign | ast.AnnAssign) and after and _is_text(after[0]):
            end = after[0].end_lineno
        begin = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])
        self.take_text("".join(self.lines[: begin - 1] + self.lines[end:]))

    def inline_modules(self, own: frozenset[str], renamed: dict[tuple[str, str], str]) -> None:
        """``sibling.name`` becomes ``name`` where a sibling is imported as a module."""
        froms = [node for node in ast.walk(self.tree) if isinstance(node, ast.ImportFrom)]
        bound = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in froms
            for alias in node.names
            if f"{node.module}.{alias.name}" in own
        }
        if not bound:
            return
        spans = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in bound:
                new = renamed.get((bound[node.value.id], node.attr), node.attr)
                spans.append((node.lineno, node.col_offset, node.end_col_offset or 0, new))
        lines = replace_spans(self.text, spans).splitlines(keepends=True)
        for node in sorted(froms, key=lambda node: -node.lineno):
            kept = [(alias.name, alias.asname) for alias in node.names if f"{node.module}.{alias.name}" not in own]
            if len(kept) != len(node.names):
                statement = " " * node.col_offset + import_statement(node.module, kept) + "\n"
                lines[node.lineno - 1 : node.end_lineno] = [statement] if kept else []
        self.take_text("".join(lines))

    def body_without(self, own: frozenset[str]) -> str:
        """The body without imports of siblings that stand in functions."""
        tree, lines = ast.parse(self.body), self.body.splitlines(keepends=True)
        edits = []
        for parent in ast.walk(tree):
            for part in ("body", "orelse", "finalbody"):
                block = getattr(parent, part, [])
                siblings = [node for node in block if _imports_one_of(node, own)] if isinstance(block, list) else []
                edits += [(node.lineno, node.end_lineno, len(block) == 1, node.col_offset) for node in siblings]
        for begin, end, alone, column in sorted(edits, reverse=True):
            lines[begin - 1 : end] = [" " * column + "pass\n"] if alone else []
        return "".join(lines)


def _imports_one_of(node: ast.stmt, modules: frozenset[str]) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module in modules


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _defined_by(node: ast.stmt) -> list[str]:
    """The names that a statement of the top level defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    if isinstance(node, ast.If | ast.Try | ast.With | ast.For):
        stored = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
        return stored + [part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef | ast.ClassDef)]
    return []
