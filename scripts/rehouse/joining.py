"""Several modules as the text of one: one docstring, one block of imports, and bodies in order of who needs whom."""

import ast
from collections.abc import Mapping

from scripts.rehouse.checkout import Checkout
from scripts.rehouse.names import import_statement
from scripts.rehouse.pieces import Imports, Pieces
from scripts.rehouse.plan import Join

Renamed = dict[tuple[str, str], str]
"""The new name of a name of a module."""

ImportLine = tuple[str, str, str | None] | str
"""Module, name and alias; or an ``import`` statement as it is written."""

Bound = tuple[str, str, str | None]


class Joining:
    """One join. ``text`` is the joined module, ``problems`` says what stands against it.

    ``places``: the new names of all modules of the plan. ``renamed`` is shared by the joins of a plan, and filled.
    """

    def __init__(self, join: Join, checkout: Checkout, places: Mapping[str, str], renamed: Renamed) -> None:
        self.join, self.places, self.renamed = join, places, renamed
        self.own = frozenset(join.modules)
        self.pieces = [Pieces(module, checkout.path_of(module)) for module in join.modules]
        self.problems: list[str] = []
        self.defined: dict[str, tuple[Pieces, ast.stmt]] = {}
        self.bound: dict[str, Bound] = {}

    def text(self) -> str:
        """The text of the joined module, to be formatted."""
        self._rename_what_would_collide()
        self._call_siblings_names_alike()
        for piece in self.pieces:
            piece.inline_modules(self.own, self.renamed)
        self.pieces = self._in_order()
        self._find_collisions()
        renames: list[tuple[Pieces, str, str]] = []
        runtime: dict[ImportLine, str] = {}
        typing: dict[ImportLine, str] = {}
        for piece in self.pieces:
            for node in piece.imports:
                self._take_import(node, piece, runtime, renames)
        for piece in self.pieces:
            for node in piece.typing:
                self._take_import(node, piece, typing, renames)
        typing = {line: comment for line, comment in typing.items() if line not in runtime}
        if typing:
            runtime.setdefault(("typing", "TYPE_CHECKING", None), "")
        parts = [self._docstring() + "\n\n", _written(runtime) + "\n"]
        if typing:
            parts.append("if TYPE_CHECKING:\n" + _written(typing, "    ") + "\n")
        for piece, old, new in renames:
            piece.rename(old, new, imports=True)
        bodies = (piece.body_without(self.own) for piece in self.pieces)
        return "".join([*parts, *("\n" + body + "\n" for body in bodies if body.strip())])

    def _rename_what_would_collide(self) -> None:
        """Names get the new ones that the plan says; a name that is imported gets an alias."""
        for piece in self.pieces:
            for old, new in self.join.renames.get(piece.module, {}).items():
                if old in piece.names():
                    piece.rename(old, new)
                    self.renamed[piece.module, old] = new
                elif not piece.alias_import(old, new):
                    self.problems.append(f"{piece.module} has no {old}")

    def _call_siblings_names_alike(self) -> None:
        """A name of a sibling that was imported under another is used under its own."""
        for piece in self.pieces:
            renames: dict[str, str] = {}
            for node in ast.walk(piece.tree):
                if isinstance(node, ast.ImportFrom) and node.module in self.own:
                    for alias in node.names:
                        new = self.renamed.get((node.module, alias.name), alias.name)
                        if (alias.asname or alias.name) != new:
                            renames[alias.asname or alias.name] = new
            for old, new in renames.items():
                piece.rename(old, new, imports=True)

    def _in_order(self) -> list[Pieces]:
        """The modules as the plan names them, each after those that it imports."""
        by_module = {piece.module: piece for piece in self.pieces}
        ordered: list[str] = []

        def visit(module: str, trail: tuple[str, ...] = ()) -> None:
            if module in ordered or module in trail:
                return
            froms = {node.module for node in by_module[module].imports if isinstance(node, ast.ImportFrom)}
            for needed in self.join.modules:
                if needed in froms:
                    visit(needed, (*trail, module))
            ordered.append(module)

        for module in self.join.modules:
            visit(module)
        return [by_module[module] for module in ordered]

    def _find_collisions(self) -> None:
        """A name that two modules define is a problem, unless both define it in the same words: then one goes."""
        for piece in self.pieces:
            for name, node in piece.names().items():
                other = self.defined.setdefault(name, (piece, node))
                if name == "_" or other[0] is piece:
                    continue
                if ast.dump(other[1]) == ast.dump(node) and not isinstance(node, ast.If | ast.Try):
                    piece.remove(name)
                else:
                    self._problem(f"{name} in {_short(other[0])} and {_short(piece)}")

    def _take_import(
        self, node: Imports, piece: Pieces, lines: dict[ImportLine, str], renames: list[tuple[Pieces, str, str]]
    ) -> None:
        """Puts an import among those of the joined module, as it is after the plan."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                self._bind(alias.asname or alias.name.split(".")[0], ("import", alias.name, alias.asname), piece)
                written = f"import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                lines[written] = piece.comment_of(node)
            return
        if node.module in self.own:
            return
        for alias in node.names:
            source = node.module or ""
            full, asname = f"{source}.{alias.name}", alias.asname
            if full in self.own:
                self._problem(f"{piece.module} uses sibling {alias.name} as a module")
                continue
            if full in self.places:
                module, _, name = self.places[full].rpartition(".")
                if asname is None and name != alias.name:
                    renames.append((piece, alias.name, name))
            else:
                module = self.places.get(source, source)
                name = self.renamed.get((source, alias.name), alias.name)
                asname = alias.name if name != alias.name and asname is None else asname
            self._bind(asname or name, ("from", module, name), piece)
            lines[module, name, asname] = piece.comment_of(node)

    def _bind(self, name: str, what: Bound, piece: Pieces) -> None:
        """A name that is imported means one thing, and nothing that is defined here."""
        if name in self.defined and what[0] != "import":
            home = _short(self.defined[name][0])
            self._problem(f"{_short(piece)} imports {name} from {what[1]}, which {home} defines")
        other = self.bound.setdefault(name, what)
        both_packages = what[0] == other[0] == "import" and what[2] is None
        if other != what and not both_packages:
            self._problem(f"{name} is {other} and {what} ({_short(piece)})")

    def _docstring(self) -> str:
        """What the plan says; else its lead and the docstrings of all modules. With no lead, the target's is first."""
        texts = [piece.doc for piece in self.pieces if piece.doc]
        if self.join.doc is not None:
            texts = [self.join.doc.strip()]
        elif self.join.lead is not None:
            texts = [self.join.lead, *(text.strip() for text in texts)]
        else:
            of_target = [piece.doc for piece in self.pieces if piece.module == self.join.target and piece.doc]
            first = (of_target or texts or [""])[0]
            texts = [first, *(text for text in texts if text != first)]
        text = "\n\n".join(text.rstrip() for text in texts).strip("\n").rstrip()
        return f'"""{text}' + ('\n"""' if "\n" in text else '"""')

    def _problem(self, text: str) -> None:
        self.problems.append(f"{self.join.target}: {text}")


def _short(piece: Pieces) -> str:
    return piece.module.rpartition(".")[2]


def _written(lines: dict[ImportLine, str], indent: str = "") -> str:
    """Import statements, each with its comment."""
    texts = []
    for line, comment in lines.items():
        statement = line if isinstance(line, str) else import_statement(line[0], [(line[1], line[2])])
        texts.append(indent + statement + (f"  {comment}" if comment else "") + "\n")
    return "".join(texts)
