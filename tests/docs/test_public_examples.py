"""Every public name shows how it is written, in its docstring, and what it shows is so."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from doctest import DocTestParser, DocTestRunner
from pathlib import Path

import pytest

import headrace as hr


@pytest.mark.parametrize("name", hr.__all__)
def test_the_example_in_the_docstring_runs(name: str, tmp_path: Path) -> None:
    imported_names = {"hr": hr, "dataclass": dataclass, "UTC": UTC, "datetime": datetime, "timedelta": timedelta}
    names = {**imported_names, "root": tmp_path.as_uri(), "__name__": "examples"}
    examples = DocTestParser().get_doctest(getattr(hr, name).__doc__ or "", names, name, None, 0)
    assert examples.examples, f"hr.{name}: its docstring has no example; write one that begins with >>>"
    texts: list[str] = []
    DocTestRunner(verbose=False).run(examples, out=texts.append)
    assert not texts, "".join(texts)
