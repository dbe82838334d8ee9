"""Great Expectations as an audit uses it: imported when it is first asked for, and no more of it than that needs.

Modules that only some uses need get stand-ins, which import them for the first use (``imported_later``).

The import of Great Expectations takes seconds of CPU, more than half of them for sources of rows that an audit does not
have. SQLAlchemy and boto3 are left out, and pyspark where nobody looks at a frame of Spark's: it does without what is
not installed.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Final

from headrace.errors import FixConfigError
from headrace.this_process import without_collection


class _LazyModule(ModuleType):
    """Stands for the module of its name, which is imported when it is first asked for something."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # the import system looks, and wants nothing
        _forget_stand_in(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def imported_later(*names: str) -> Iterator[None]:
    """What is imported inside gets stand-ins for those modules ``names`` that are not imported yet; others get none."""
    stand_ins = [_LazyModule(name) for name in names if name not in sys.modules]
    sys.modules.update({stand_in.__name__: stand_in for stand_in in stand_ins})
    try:
        yield
    finally:
        for stand_in in stand_ins:
            _forget_stand_in(stand_in)


def _forget_stand_in(stand_in: _LazyModule) -> None:
    if sys.modules.get(stand_in.__name__) is stand_in:
        del sys.modules[stand_in.__name__]


_NAME: Final = "great_expectations"
_LATE_IMPORTS: Final = ("altair", "scipy.stats")
"""For a few expectations and a picture, which import them then."""

_lock = threading.Lock()
_left_out = ["sqlalchemy", "pyspark.sql.connect", "boto3", "botocore"]


class ExpectationNotEvaluatedError(FixConfigError, code="config.expectation_not_evaluated"):
    """Great Expectations could not say whether an expectation holds: it does not suit the column."""


@dataclass(frozen=True)
class Library:
    """What an audit uses of it."""

    gx: ModuleType
    registry: ModuleType
    metrics: ModuleType  # ours
    validator: type[Any]
    progress_bars: type[Any]
    page_renderer: type[Any]
    page_view: Any  # one: it compiles its templates, which takes longer than a page


def leave_out_spark() -> None:
    """Say, before anything is audited, that this process will not look at frames of Spark's."""
    _left_out.append("pyspark")


def load_library() -> Library:
    """Great Expectations, imported once."""
    with _lock:  # an import that another thread has begun may have something refused
        return _import_library()


@cache
def _import_library() -> Library:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    logging.getLogger(_NAME).setLevel(logging.WARNING)  # before the import: it logs 200 lines
    with imported_later(*_LATE_IMPORTS), _refuse_imports(_left_out), without_collection():
        base = import_module(f"{_NAME}.data_context.types.base")
        used = Library(
            metrics=import_module("headrace.audit.gx_metrics"),
            gx=import_module(_NAME),
            registry=import_module(f"{_NAME}.expectations.registry"),
            validator=import_module(f"{_NAME}.validator.v1_validator").Validator,
            progress_bars=base.ProgressBarsConfig,
            page_renderer=import_module(f"{_NAME}.render.renderer").ValidationResultsPageRenderer,
            page_view=import_module(f"{_NAME}.render.view").DefaultJinjaPageView(),
        )
    logging.getLogger(base.__name__).setLevel(logging.WARNING)  # its import says INFO
    return used


class _Refusing(MetaPathFinder):
    """Finds nothing, and lets one thread believe that some modules are not installed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names, self._thread = names, threading.get_ident()

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Raises ModuleNotFoundError for those modules."""
        if name in self._names and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is left out of {_NAME}", name=name)


@contextmanager
def _refuse_imports(names: Sequence[str]) -> Iterator[None]:
    """Inside, this thread cannot import those modules ``names`` that are not imported yet."""
    finder = _Refusing(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
