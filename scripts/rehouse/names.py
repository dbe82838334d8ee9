"""Names in the text of a module: import statements, and a global name that gets another."""

import ast
import re
from collections.abc import Iterator

import libcst as cst
from libcst.metadata import GlobalScope, MetadataWrapper, PositionProvider, ScopeProvider

from scripts.rehouse.plan import RefusedPlanError


def import_statement(module: str | None, names: list[tuple[str, str | None]], keep_as: bool = False) -> str:
    """``from module import name as alias, ...``. ``keep_as``: a stub says ``A as A`` of what it gives on."""
    parts = (f"{name} as {alias}" if alias and (keep_as or alias != name) else name for name, alias in names)
    return f"from {module} import {', '.join(parts)}"


def is_for_types(node: ast.AST) -> bool:
    """Whether a statement is ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def rename_global(text: str, old: str, new: str, where: str, imports: bool = False) -> str:
    """``text`` with the global name ``old`` called ``new`` wherever it means that global, in annotations too.

    ``imports``: an import may bind the name; its statement is rewritten by the caller.
    """
    spots = set(_spots(text, old, where, imports))
    lines = text.splitlines(keepends=True)
    for number, column in sorted(spots, reverse=True):
        line = lines[number - 1]
        lines[number - 1] = line[:column] + new + line[column + len(old) :]
    text = "".join(lines).replace(f"``{old}``", f"``{new}``")
    return _rename_in_annotations(text, old, new)


def _spots(text: str, old: str, where: str, imports: bool) -> Iterator[tuple[int, int]]:
    """Line and column of each use of a global name."""
    wrapper = MetadataWrapper(cst.parse_module(text))
    positions = wrapper.resolve(PositionProvider)
    scope = next(scope for scope in wrapper.resolve(ScopeProvider).values() if isinstance(scope, GlobalScope))
    for assignment in scope.assignments[old]:
        nodes = [_bound_name(getattr(assignment, "node", None), old, where, imports)]
        nodes += [_base(reference.node) for reference in assignment.references]
        for node in nodes:
            if isinstance(node, cst.Name) and node.value == old:
                start = positions[node].start
                yield start.line, start.column


def _bound_name(node: cst.CSTNode | None, old: str, where: str, imports: bool) -> cst.CSTNode | None:
    """The node of the name that a statement binds."""
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return node.name
    if not isinstance(node, cst.Import | cst.ImportFrom):
        return node
    for alias in node.names:
        if alias.asname and isinstance(alias.asname.name, cst.Name) and alias.asname.name.value == old:
            return alias.asname.name
        if alias.asname is None and isinstance(alias.name, cst.Name) and alias.name.value == old and not imports:
            raise RefusedPlanError(f"{where}: cannot rename import {old}")
    return None


def _base(node: cst.CSTNode) -> cst.CSTNode:
    """The name with which ``a.b.c`` begins."""
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _rename_in_annotations(text: str, old: str, new: str) -> str:
    """Annotations that are strings follow."""
    word = re.compile(rf"(?<!\w){re.escape(old)}\b")
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            for part in _types_in(annotation) if annotation is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and word.search(part.value):
                    line = lines[part.lineno - 1]
                    lines[part.lineno - 1] = re.sub(r'"[^"]*"', lambda quoted: word.sub(new, quoted.group(0)), line)
    return "".join(lines)


def _types_in(annotation: ast.AST) -> Iterator[ast.AST]:
    """An annotation and its parts, but for what is said beside the type: ``Annotated[int, Option(help="...")]``."""
    yield annotation
    for part in ast.iter_child_nodes(annotation):
        if not isinstance(part, ast.Call):
            yield from _types_in(part)


def replace_spans(text: str, spans: list[tuple[int, int, int, str]]) -> str:
    """``text`` with spans of lines replaced: line, first byte, last byte, and what stands there."""
    lines = text.splitlines(keepends=True)
    for number, begin, end, new in sorted(spans, reverse=True):
        raw = lines[number - 1].encode()
        lines[number - 1] = (raw[:begin] + new.encode() + raw[end:]).decode()
    return "".join(lines)
