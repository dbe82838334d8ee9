"""Pipeline files: what they may import, and what becomes of those that cannot be used."""

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.commands import app
from headrace.errors import PipelineError
from headrace.pipeline.code import code_of
from headrace.pipeline.registry import PipelineFileError, UnknownPipelineError, registered_files, resolve
from tests.airflow.subprocesses import write_pipeline


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path))
    write_pipeline(tmp_path, "clicks")
    return tmp_path


BAD = {
    "syntax": ("\ndef f(:\n", "{file}:2: SyntaxError: "),
    "exits": ("import sys\n\nsys.exit(3)\n", "{file}:3: SystemExit: it calls sys.exit(3)"),
    "raises": ("def f():\n    raise KeyError('x')\nf()\n", "{file}:2: KeyError: 'x'"),
    "imports": ("import bad_helper\n", "{folder}/bad_helper.py:2: ZeroDivisionError"),
    "lacks": ("import nowhere_to_be_found\n", "{file}:1: ModuleNotFoundError"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_fails_alone_with_file_and_line(folder: Path, name: str) -> None:
    text, said = BAD[name]
    (folder / "bad_helper.py").write_text("pass\n1 / 0\n") if name == "imports" else None
    file = folder / "a_bad_one.py"
    file.write_text(text)
    said = said.format(file=file, folder=folder)
    assert resolve("clicks").name == "clicks"
    assert registered_files().broken[file].startswith(said)
    with pytest.raises(UnknownPipelineError, match="cannot be used") as unknown:
        resolve("a_bad_one")
    assert said in str(unknown.value)
    with pytest.raises(PipelineFileError) as of_file:
        resolve(str(file))
    assert said in str(of_file.value)
    listed = CliRunner().invoke(app, ["pipelines"])
    assert listed.exit_code == 0
    assert "clicks" in listed.stdout
    assert said in listed.stderr


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        ("0 25 * * *", "hour 25 is not between 0 and 23"),
        (5, "it is not text"),
        ("0 0 * *", "it has 4 fields and not 5"),
        ("0 0 31 feb *", "there is no such day"),
        ("@hourlyy", "it has 1 fields"),
        ("", "it has 0 fields"),
        ("0 0 * * mon-/2", "'mon-/2' is not a weekday"),
        ("*/0 * * * *", "is not a minute"),
    ],
)
def test_schedules_are_checked_when_the_pipeline_is_built(folder: Path, schedule: object, said: str) -> None:
    file = write_pipeline(folder, "wrong", options=f"schedule={schedule!r}")
    with pytest.raises(PipelineError) as error:
        resolve(str(file))
    assert f"{file}:8: " in str(error.value)
    assert said in str(error.value)
    assert set(registered_files().broken) == {file}


@pytest.mark.parametrize(
    "schedule", ["*/15 * * * *", "0 6-18/2 * * mon-fri", "@hourly", "@once", "0 0 1,15 jan-mar *", "5 4 * * fri-mon"]
)
def test_good_schedules_are_taken(folder: Path, schedule: str) -> None:
    write_pipeline(folder, "right", options=f"schedule={schedule!r}")
    assert resolve("right").schedule == schedule


def test_a_name_that_two_files_define_is_refused_and_the_others_are_not(folder: Path) -> None:
    (folder / "zz_again.py").write_text((folder / "clicks.py").read_text())
    write_pipeline(folder, "other")
    assert resolve("other").name == "other"
    with pytest.raises(UnknownPipelineError, match=r"is defined in .*clicks\.py and in .*zz_again\.py"):
        resolve("clicks")


def test_a_folder_that_is_none_takes_nothing_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PIPELINES", f"/nowhere:{folder}:{folder}")
    assert resolve("clicks").name == "clicks"
    assert list(registered_files().broken.values()) == ["/nowhere: HEADRACE_PIPELINES names it and it is not a folder"]


def test_what_lies_beside_comes_before_what_is_installed_but_not_before_python(folder: Path) -> None:
    (folder / "rich.py").write_text("HERE = 1\n")
    (folder / "calendar.py").write_text("raise AssertionError('not this one')\n")
    (folder / "headrace.py").write_text("raise AssertionError('nor this one')\n")
    (folder / "_package").mkdir()
    (folder / "_package" / "__init__.py").write_text("from rich import HERE\n")
    (folder / "_package" / "inner.py").write_text("import rich\nfrom _package import HERE\nFOUND = rich.HERE + HERE\n")
    file = folder / "clicks.py"
    file.write_text("import calendar\nimport _package.inner as found\nassert found.FOUND == 2\n" + file.read_text())
    assert resolve("clicks").name == "clicks"
    assert not hasattr(sys.modules["rich"], "HERE")
    assert str(folder) not in sys.path


def test_what_a_file_says_now_counts_even_within_the_second(folder: Path) -> None:
    """Python's cached bytecode is told by size and seconds."""
    file = folder / "clicks.py"
    (folder / "_named.py").write_text("TEXT = 'a'\n")
    file.write_text(file.read_text().replace('    "clicks",', "    TEXT,") + "\n")
    file.write_text("from _named import TEXT\n" + file.read_text())
    for name in ("a", "b", "c"):
        (folder / "_named.py").write_text(f"TEXT = {name!r}\n")
        assert resolve(str(file)).name == name


OWN = '''
from dataclasses import dataclass
from _consts import LIMITS, unused

@dataclass(frozen=True)
class Own(Base if (Base := hr.CustomCombiner) else None):
    """{docstring}"""
    accumulator_types = {{"n": hr.DataType.INT}}
    result_type = hr.DataType.INT

    def create(self): return {{"n": 0}}  # {comment}
    def add(self, a, v): return {{"n": a["n"] + helped(v)}}
    def merge(self, a, b): return {{"n": a["n"] + b["n"]}}
    def extract(self, a): return a["n"]

def helped(value):
    return min(value, {limit}) + {body}

def not_used(): return {unused}
'''
CONSTS = "LIMITS = {{'low': {low}}}\nLIMITS.update(high={high})\nunused = {unused}\n"
PLAIN = {
    "docstring": "x", "comment": "x", "body": 1, "unused": 1, "low": 1, "high": 2, "limit": "LIMITS['low']",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({"docstring": "y"}, False),
        ({"comment": "y"}, False),
        ({"unused": 2}, False),
        ({"body": 2}, True),
        ({"low": 2}, True),
        ({"high": 3}, True),
        ({"limit": "LIMITS['high']"}, True),
    ],
)
def test_what_counts_as_code_of_ones_own(folder: Path, changed: dict[str, object], counts: bool) -> None:
    file = folder / "clicks.py"
    text = file.read_text().replace("hr.count()", 'col("user").combine(Own())')

    def code(**parts: object) -> dict[str, str]:
        (folder / "_consts.py").write_text(CONSTS.format(**parts))
        file.write_text(text.replace("\nclicks =", OWN.format(**parts) + "\nclicks ="))
        return code_of(resolve(str(file)))

    before = code(**PLAIN)
    assert list(before) == ["clicks:Own"]
    assert (code(**PLAIN | changed) != before) is counts
