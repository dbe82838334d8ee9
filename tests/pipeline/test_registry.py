"""Pipeline files: what they may import, and what becomes of those that cannot be used."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from importlib import import_module
from pathlib import Path
from threading import Event
from types import ModuleType

import pytest
from click.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import FixConfigError, PipelineError
from headrace.pipeline.loading.code_digests import code_of
from headrace.pipeline.loading.registry import (
    PipelineFileError,
    UnknownPipelineError,
    find_registered,
    registered_files,
    resolve_pipeline,
)
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
    text, message = BAD[name]
    (folder / "bad_helper.py").write_text("pass\n1 / 0\n") if name == "imports" else None
    file = folder / "a_bad_one.py"
    file.write_text(text)
    message = message.format(file=file, folder=folder)
    assert resolve_pipeline("clicks").name == "clicks"
    assert registered_files().broken[file].startswith(message)
    with pytest.raises(UnknownPipelineError, match="cannot be used") as unknown:
        resolve_pipeline("a_bad_one")
    assert message in str(unknown.value)
    with pytest.raises(PipelineFileError) as of_file:
        resolve_pipeline(str(file))
    assert message in str(of_file.value)
    listed_result = CliRunner().invoke(app, ["pipelines"])
    assert listed_result.exit_code == 0
    assert "clicks" in listed_result.stdout
    assert message in listed_result.stderr


STRANGE = {
    "blocks": ("import time\n\ntime.sleep(300)\n", "{file}:3: it has not ended after 1 s: let it define pipelines"),
    "turns": ("while True:\n    pass\n", "{file}:"),
    "goes_on": (
        "import time\n\ntry:\n    time.sleep(300)\nexcept:\n    time.sleep(300)\n",
        "{file}:6: it has not ended",
    ),
    "interrupts": ("raise KeyboardInterrupt('x')\n", "{file}:1: KeyboardInterrupt: x"),
    "closes": ("\nraise GeneratorExit\n", "{file}:2: GeneratorExit: "),
    "cancels": ("import asyncio\nraise asyncio.CancelledError\n", "{file}:2: CancelledError: "),
    "own": ("class Own(BaseException): ...\nraise Own('x')\n", "{file}:2: Own: x"),
    "mute": (
        "class Mute(Exception):\n    def __str__(self): return 1 / 0\nraise Mute\n",
        "{file}:3: Mute: (its text cannot",
    ),
    "recurses": ("def f(): f()\nf()\n", "{file}:1: RecursionError: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGE)
def test_a_file_that_blocks_or_raises_what_is_no_exception_fails_alone(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_IMPORT_LIMIT", "1s")
    text, message = STRANGE[name]
    file = folder / "a_bad_one.py"
    file.write_text(text)
    files = registered_files()
    assert "clicks" in files.pipelines
    assert files.broken[file].startswith(message.format(file=file))


def test_what_a_file_holds_is_not_asked_what_it_is(folder: Path) -> None:
    """A proxy, as many libraries have them, computes what it stands for as soon as somebody asks."""
    file = folder / "clicks.py"
    proxy = "class Proxy:\n    @property\n    def __class__(self): raise SystemExit\n\nproxy = Proxy()\n"
    file.write_text(file.read_text() + proxy)
    assert "clicks" in registered_files().pipelines


@pytest.mark.slow
def test_a_limit_set_outside_leaves_time_for_the_others_and_holds_afterwards(folder: Path) -> None:
    """Airflow has one for all files together, of thirty seconds."""
    for name in ("a", "b", "c"):
        (folder / f"{name}.py").write_text("import time\ntime.sleep(300)\n")

    def end(*_: object) -> None:
        raise TimeoutError("all of them")

    handler_before = signal.signal(signal.SIGALRM, end)
    outer = signal.setitimer(signal.ITIMER_REAL, 4)
    try:
        files = registered_files()
        assert len(files.broken) == 3
        assert "clicks" in files.pipelines
        with pytest.raises(TimeoutError, match="all of them"):
            signal.pause()
    finally:
        signal.signal(signal.SIGALRM, handler_before)
        signal.setitimer(signal.ITIMER_REAL, *outer)


@pytest.mark.slow
def test_a_file_that_is_named_may_take_its_time_and_a_person_may_end_that(folder: Path) -> None:
    file = folder / "clicks.py"
    file.write_text("import os, signal, time\ntime.sleep(1.5)\n" + file.read_text())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_IMPORT_LIMIT", "1s")
        assert resolve_pipeline(str(file)).name == "clicks"
        assert list(registered_files().broken) == [file]
    file.write_text(file.read_text().replace("time.sleep(1.5)", "os.kill(os.getpid(), signal.SIGINT)"))
    handler_before = signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
    try:
        with pytest.raises(KeyboardInterrupt):
            registered_files()
    finally:
        signal.signal(signal.SIGINT, handler_before)


def test_beside_the_main_thread_files_are_loaded_without_a_limit(folder: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert "clicks" in pool.submit(registered_files).result().pipelines


@pytest.mark.parametrize("limit", ["soon", "10"])
def test_a_limit_that_is_no_length_of_time_is_refused(
    folder: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_IMPORT_LIMIT", limit)
    with pytest.raises(FixConfigError, match=f"HEADRACE_IMPORT_LIMIT='{limit}': .* write 10s"):
        registered_files()


def test_one_pipeline_is_found_without_what_need_not_be_loaded(folder: Path) -> None:
    (folder / "a_bad_one.py").write_text("raise AssertionError('not this one')\n")
    assert find_registered("clicks").file == folder / "clicks.py"
    computed_pipeline = write_pipeline(folder, "computed")
    computed_pipeline.write_text(
        computed_pipeline.read_text().replace('"computed"', '"com" + "puted"').replace("computed =", "it =")
    )
    assert find_registered("computed").file == computed_pipeline
    with pytest.raises(UnknownPipelineError, match=r"(?s)no pipeline 'typo'.*a_bad_one\.py:1: AssertionError"):
        find_registered("typo")


def test_of_a_name_that_two_files_define_the_same_counts_whoever_asks(folder: Path) -> None:
    text = (folder / "clicks.py").read_text()
    (folder / "a_copy.py").write_text(text.replace('"clicks"', '"cli" + "cks"', 1).replace("/clicks", "/else"))
    (folder / "zz_copy.py").write_text(text)
    files = registered_files()
    assert files.pipelines["clicks"].file == find_registered("clicks").file
    assert {file.name for file in files.broken} | {find_registered("clicks").file.name} == {
        "a_copy.py", "clicks.py", "zz_copy.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "message"),
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
def test_schedules_are_checked_when_the_pipeline_is_built(folder: Path, schedule: object, message: str) -> None:
    file = write_pipeline(folder, "wrong", options=f"schedule={schedule!r}")
    with pytest.raises(PipelineError) as error:
        resolve_pipeline(str(file))
    assert f"{file}:8: " in str(error.value)
    assert message in str(error.value)
    assert set(registered_files().broken) == {file}


@pytest.mark.parametrize(
    "schedule", ["*/15 * * * *", "0 6-18/2 * * mon-fri", "@hourly", "@once", "0 0 1,15 jan-mar *", "5 4 * * fri-mon"]
)
def test_good_schedules_are_taken(folder: Path, schedule: str) -> None:
    write_pipeline(folder, "right", options=f"schedule={schedule!r}")
    assert resolve_pipeline("right").schedule == schedule


def test_a_name_that_two_files_define_is_refused_and_the_others_are_not(folder: Path) -> None:
    (folder / "zz_again.py").write_text((folder / "clicks.py").read_text())
    write_pipeline(folder, "other")
    assert resolve_pipeline("other").name == "other"
    with pytest.raises(UnknownPipelineError, match=r"is defined in .*clicks\.py and in .*zz_again\.py"):
        resolve_pipeline("clicks")


def test_a_folder_that_is_none_takes_nothing_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PIPELINES", f"/nowhere:{folder}:{folder}")
    assert resolve_pipeline("clicks").name == "clicks"
    assert list(registered_files().broken.values()) == [
        "/nowhere: HEADRACE_PIPELINES names it and it is not a folder that can be read: No such file or directory"
    ]


def test_what_lies_beside_comes_before_what_is_installed_but_not_before_python(folder: Path) -> None:
    (folder / "rich.py").write_text("HERE = 1\n")
    (folder / "calendar.py").write_text("raise AssertionError('not this one')\n")
    (folder / "headrace.py").write_text("raise AssertionError('nor this one')\n")
    (folder / "_package").mkdir()
    (folder / "_package" / "__init__.py").write_text("from rich import HERE\n")
    (folder / "_package" / "inner.py").write_text("import rich\nfrom _package import HERE\nFOUND = rich.HERE + HERE\n")
    file = folder / "clicks.py"
    file.write_text("import calendar\nimport _package.inner as found\nassert found.FOUND == 2\n" + file.read_text())
    assert resolve_pipeline("clicks").name == "clicks"
    assert not hasattr(import_module("rich"), "HERE")
    assert str(folder) not in sys.path


def test_what_a_file_says_now_counts_even_within_the_second(folder: Path) -> None:
    """Python's cached bytecode is told by size and seconds."""
    file = folder / "clicks.py"
    (folder / "_named.py").write_text("TEXT = 'a'\n")
    file.write_text(file.read_text().replace('    "clicks",', "    TEXT,") + "\n")
    file.write_text("from _named import TEXT\n" + file.read_text())
    for name in ("a", "b", "c"):
        (folder / "_named.py").write_text(f"TEXT = {name!r}\n")
        assert resolve_pipeline(str(file)).name == name


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
    ("changes", "counts"),
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
def test_what_counts_as_code_of_ones_own(folder: Path, changes: dict[str, object], counts: bool) -> None:
    file = folder / "clicks.py"
    text = file.read_text().replace("hr.count()", 'col("user").combine(Own())')

    def code(**parts: object) -> dict[str, str]:
        (folder / "_consts.py").write_text(CONSTS.format(**parts))
        file.write_text(text.replace("\nclicks =", OWN.format(**parts) + "\nclicks ="))
        return code_of(resolve_pipeline(str(file)))

    code_before = code(**PLAIN)
    assert list(code_before) == ["clicks:Own"]
    assert (code(**PLAIN | changes) != code_before) is counts


def test_a_file_that_another_thread_is_executing_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun_event, go = Event(), Event()
    gate = ModuleType("gate")
    vars(gate).update(begun=begun_event, go=go)
    monkeypatch.setitem(sys.modules, "gate", gate)
    file = folder / "clicks.py"
    file.write_text(f"import gate\ngate.begun.set()\nassert gate.go.wait(60)\n{file.read_text()}")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(resolve_pipeline, str(file))
        assert begun_event.wait(60)
        second = threads.submit(resolve_pipeline, str(file))
        assert wait([second], timeout=0.2).not_done, "it must not see half of the module"
        go.set()
        assert [first.result(60).name, second.result(60).name] == ["clicks", "clicks"]
