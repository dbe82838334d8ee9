"""What users' own code says: digests of the definitions that named functions and own objects reach; the functions.

The fingerprint knows own objects by their class and fields, and functions by their names. A digest is of what lies
behind the names: the definition, and what it reads of its module and of those that this imports. It goes as far as that
is written in the same folder or, of an installed package, in that package. Comments, docstrings and layout do not
count.
"""

import ast
import hashlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property, lru_cache
from importlib.util import resolve_name
from types import ModuleType
from typing import Any, TypeVar

from headrace.errors import FixConfigError, HeadraceError
from headrace.pipeline.endpoints import OwnFunction, Source
from headrace.pipeline.identity import cache_per_pipeline
from headrace.pipeline.loading.modules import OWN_PACKAGES, import_from_package, package_of, plain_name
from headrace.pipeline.pipeline import Pipeline

_Import = ast.Import | ast.ImportFrom
_DocstringNode = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
A = TypeVar("A")


def code_of(pipeline: Pipeline) -> dict[str, str]:
    """Digests by ``module:name``; nothing for code whose source is not to be had. Imports the named functions."""
    digests = {}
    for module, name in _modules_and_names(pipeline):
        if text := _ReachedStatements(module).source_text(name):
            digests[f"{plain_name(module.__name__)}:{name}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return dict(sorted(digests.items()))


def changed_code(pipeline: Pipeline, recorded_digests: Mapping[str, str]) -> list[str]:
    """The names of own code whose digest is not among ``recorded_digests``."""
    return [name for name, digest in code_of(pipeline).items() if recorded_digests.get(name) != digest]


def modules_of(value: Any) -> set[str]:
    """The names of the modules that define own objects and functions anywhere in ``value``, as in a pipeline."""
    return {module.__name__ for module, _ in _modules_and_names(value)}


def _modules_and_names(value: Any) -> Iterator[tuple[ModuleType, str]]:
    """The modules and names of functions, and of classes of own objects, anywhere in ``value``."""
    for named_object in _named_objects(value):
        if (module := _module_of(named_object)) is not None:
            yield (
                module,
                named_object.name.partition(":")[2] if isinstance(named_object, OwnFunction) else named_object[1],
            )


_NamedObject = OwnFunction | tuple[str, str]
"""A function, or the module and the name of a class."""


def _module_of(named_object: _NamedObject) -> ModuleType | None:
    if not isinstance(named_object, OwnFunction):
        return sys.modules.get(named_object[0])
    try:
        return import_from_package(named_object.name.partition(":")[0], named_object.package)
    except Exception:  # the run says so when it needs the function
        return None


@cache_per_pipeline
def _named_in_pipeline(pipeline: Pipeline) -> Sequence[_NamedObject]:
    each_once: list[_NamedObject] = []
    for named_object in _named_in_object(pipeline):
        if named_object not in each_once:  # a function that says what it gives has no hash
            each_once.append(named_object)
    return each_once


def _named_objects(value: Any) -> Iterator[_NamedObject]:
    if isinstance(value, Pipeline):
        yield from _named_in_pipeline(value)
    elif isinstance(value, OwnFunction):
        yield value
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _named_in_object(value)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _named_objects(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _named_objects(part)


def _named_in_object(value: Any) -> Iterator[_NamedObject]:
    kind = type(value)
    is_own = kind.__module__.partition(".")[0] not in OWN_PACKAGES
    if is_own and not isinstance(value, Source):  # a source is installed wherever its connector is
        yield kind.__module__, kind.__qualname__.partition(".")[0]
    for field in fields(value):
        yield from _named_objects(getattr(value, field.name))


class _ReachedStatements:
    """The statements that definitions of ``module`` reach, in it and in the modules beside it."""

    def __init__(self, module: ModuleType) -> None:
        self._start = module
        self._home = package_of(module.__name__) or module.__name__.partition(".")[0]
        self._visited_names: set[tuple[str, str, tuple[str, ...]]] = set()
        self._text_by_statement: dict[tuple[str, int], str] = {}
        self._read: dict[str, _Source] = {}

    def source_text(self, name: str) -> str:
        """All of them, in an order that does not depend on where they stand among others."""
        self._reach_name(self._start.__name__, name)
        return "\n".join(sorted(self._text_by_statement.values()))

    def _reach_name(self, module: str, name: str, attributes: tuple[str, ...] = ()) -> None:
        if (module, name, attributes) in self._visited_names or not self._is_ours(module):
            return
        self._visited_names.add((module, name, attributes))
        source = self._read_source(module)
        for number in source.defining.get(name, ()):
            self._take(module, number, source.statements[number])
        for imported_by in (*source.imports.get(name, ()), *source.imports.get("*", ())):
            self._follow_import(module, imported_by, name, attributes)

    def _take(self, module: str, number: int, statement: "_Statement") -> None:
        if (module, number) in self._text_by_statement:
            return
        self._text_by_statement[module, number] = f"{plain_name(module)}: {statement.text}"
        for name, attributes in statement.read:
            self._reach_name(module, name, attributes)
            for inner_statement in statement.imports:
                self._follow_import(module, inner_statement, name, attributes)

    def _follow_import(self, module: str, statement: _Import, name: str, attributes: tuple[str, ...]) -> None:
        """Go on in another module if ``statement`` gives ``name`` from there, of which ``attributes`` are read."""
        for alias in statement.names:
            if isinstance(statement, ast.Import):
                top = alias.name.partition(".")[0]
                if name == (alias.asname or top):
                    self._reach_in(self._absolute_name(module, alias.name if alias.asname else top), attributes)
            elif alias.name == "*" or name == (alias.asname or alias.name):
                origin = self._absolute_name(module, "." * statement.level + (statement.module or ""))
                self._reach_in(origin, (name if alias.name == "*" else alias.name, *attributes))

    def _reach_in(self, module: str, path: tuple[str, ...]) -> None:
        """Go on at what ``path`` leads to from ``module``: a name in it or in a module of it, or a whole one."""
        while path and f"{module}.{path[0]}" in sys.modules:
            module, path = f"{module}.{path[0]}", path[1:]
        if path:
            self._reach_name(module, path[0], path[1:])
        elif self._is_ours(module):
            for number, statement in enumerate(self._read_source(module).statements):
                self._take(module, number, statement)

    def _absolute_name(self, module: str, name: str) -> str:
        """The name among ``sys.modules`` of what ``module`` calls ``name``."""
        if name.startswith("."):
            is_package = hasattr(sys.modules[module], "__path__")
            return resolve_name(name, module if is_package else module.rpartition(".")[0])
        sibling = f"{package_of(module)}.{name}"
        return sibling if sibling in sys.modules else name

    def _read_source(self, module: str) -> "_Source":
        if module not in self._read:
            self._read[module] = _module_source(module)
        return self._read[module]

    def _is_ours(self, module: str) -> bool:
        return module in sys.modules and module.partition(".")[0] == self._home


@dataclass(frozen=True)
class _Statement:
    """A statement of the top level of a module, and what is asked of it, once it was."""

    node: ast.stmt

    @cached_property
    def text(self) -> str:
        """The statement in one layout."""
        return ast.unparse(self.node)

    @cached_property
    def read(self) -> Sequence[tuple[str, tuple[str, ...]]]:
        """The names that it reads, each with the attributes that it reads of it; each once."""
        return [*dict.fromkeys(_names_read(self.node))]

    @cached_property
    def imports(self) -> Sequence[_Import]:
        return [node for node in ast.walk(self.node) if isinstance(node, _Import)]


@dataclass(frozen=True)
class _Source:
    """The top level of a module, and where names are in it."""

    statements: Sequence[_Statement]

    @cached_property
    def defining(self) -> Mapping[str, Sequence[int]]:
        """The numbers of the statements that give a name, but for imports."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, statement in enumerate(self.statements):
            if not isinstance(statement.node, _Import):
                for name in _defined_names(statement.node):
                    numbers[name].append(number)
        return dict(numbers)

    @cached_property
    def imports(self) -> Mapping[str, Sequence[_Import]]:
        """The imports that give a name; the imports of all names of a module are under ``*``."""
        statements: dict[str, list[_Import]] = defaultdict(list)
        for node in (statement.node for statement in self.statements):
            if isinstance(node, _Import):
                for alias in node.names:
                    statements[alias.asname or alias.name.partition(".")[0]].append(node)
        return dict(statements)


def _module_source(module: str) -> _Source:
    """The top level of a module, without docstrings; nothing if its source is not to be had."""
    spec = sys.modules[module].__spec__
    loader = None if spec is None else spec.loader
    source = loader.get_source(module) if loader is not None and hasattr(loader, "get_source") else None
    return _Source(()) if source is None else _parse_source(source)


@lru_cache(maxsize=128)
def _parse_source(source: str) -> _Source:
    """The statements of a ``source``. A run asks what code says for each output, at its beginning and at its end."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, _DocstringNode) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return _Source(tuple(map(_Statement, tree.body)))


def _names_read(node: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names that ``node`` reads, each with the attributes that it reads of it."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id, tuple(attributes)
    for child in ast.iter_child_nodes(node):
        yield from _names_read(child)


def _defined_names(statement: ast.stmt) -> set[str]:
    """The names that a statement of the top level gives, changes, or calls a method of."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {statement.name}
    names = set()
    for node in ast.walk(statement):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case (
                ast.Attribute(ctx=ast.Store(), value=ast.Name(id=name))
                | ast.Subscript(ctx=ast.Store(), value=ast.Name(id=name))
            ):
                names.add(name)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                names.add(name)
    return names


@dataclass(frozen=True)
class NamedFunction:
    """A ``function``, and what the ``module`` that has it is called in memory."""

    function: Callable[..., Any]
    module: str


def named_function(what: str, reference: str, package: str | None, error: type[FixConfigError]) -> NamedFunction:
    """The function that is ``reference``; ``what`` names it for people. Raises an ``error`` where there is none, and
    whatever else the module raises as it is imported.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = import_from_package(name, package)
    except ImportError as problem:
        raise error(
            f"{what}: module {name} cannot be imported ({problem}): it lies beside the pipeline's file, or is installed"
        ) from problem
    function = getattr(module, attribute, None)
    if not callable(function):
        raise error(f"{what}: module {name} has no function {attribute}")
    return NamedFunction(function, module.__name__)


_LOADED_ATTRIBUTE = "_loaded"


def load_function(function: OwnFunction, error: type[FixConfigError]) -> Callable[..., Any]:
    """The function itself, which stays with the definition wherever that travels. Raises an ``error``."""
    if _LOADED_ATTRIBUTE not in function.__dict__:
        try:
            own = named_function(function.in_words, function.name, function.package, error)
        except HeadraceError:
            raise
        except Exception as problem:  # a module of the user's own may raise anything
            raise error(
                f"{function.in_words}: its module fails as it is imported: {type(problem).__name__}: {problem}"
            ) from problem
        function.__dict__[_LOADED_ATTRIBUTE] = own.function
    call: Callable[..., Any] = function.__dict__[_LOADED_ATTRIBUTE]
    return call


def call_on_rows(call: Callable[[Any], object], rows: Any, answer: type[A], wrong: Callable[[str], Exception]) -> A:
    """The ``answer`` of a user's function about ``rows``. Raises HeadraceErrors that the function raises, and what
    ``wrong`` makes of anything else that it raises or gives.
    """
    try:
        result = call(rows)
    except (HeadraceError, MemoryError):
        raise
    except Exception as error:
        raise wrong(f"failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, answer):
        raise wrong(f"gave {type(result).__name__}, and must give a pyarrow.{answer.__name__}")
    return result
