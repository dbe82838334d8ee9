"""A name leads to its file: which files are loaded for it, and that the answer is the one that all files give."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace import Pipeline
from headrace.cli.main import app
from headrace.pipeline.loading import registry
from headrace.pipeline.loading.modules import content_digest, load_module
from headrace.pipeline.loading.registry import UnknownPipelineError, registered_files, resolve_pipeline, resolve_to_run
from headrace.pipeline.validation import UpstreamCycleError, check_beside
from tests.airflow.subprocesses import write_pipeline


class Folder:
    """A folder of pipelines, and the names of the files that were loaded since somebody asked."""

    def __init__(self, path: Path, cache: Path) -> None:
        self.path, self.cache, self._loaded_names = path, cache, list[str]()

    def load(self, file: Path) -> object:
        """``load``, which is counted; not the files that ship."""
        if file.parent == self.path:
            self._loaded_names.append(file.stem)
        return load_module(file)

    def loaded_by(self, act: Callable[[], object]) -> list[str]:
        """The files that are loaded while something is done."""
        self._loaded_names.clear()
        act()
        return sorted(self._loaded_names)

    def write(self, name: str, text: str) -> Path:
        """A file with that text."""
        file = self.path / f"{name}.py"
        file.write_text(text)
        return file

    @property
    def index(self) -> Path:
        """The file with what is known."""
        (index,) = (file for file in (self.cache / "names").iterdir() if "daily" in file.read_text())
        return index


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    made_folder = Folder(tmp_path / "pipelines", tmp_path / "cache")
    made_folder.path.mkdir()
    monkeypatch.setenv("HEADRACE_PIPELINES", str(made_folder.path))
    monkeypatch.setenv("HEADRACE_CACHE", str(made_folder.cache))
    monkeypatch.setattr(registry, "load_module", made_folder.load)
    for name in ("clicks", "daily", "views"):
        write_pipeline(made_folder.path, name)
    return made_folder


ALL = ["clicks", "daily", "views"]


def rename_pipeline(text: str, name: str) -> str:
    """The text of ``clicks``, whose pipeline is called what ``name`` computes."""
    return text.replace('    "clicks",', f"    {name},")


def test_only_the_named_file_is_loaded_once_all_are_known(folder: Folder) -> None:
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ALL
    for name in ALL:
        assert folder.loaded_by(partial(resolve_pipeline, name)) == [name]
        assert folder.loaded_by(partial(resolve_to_run, name)) == [name]
        assert resolve_pipeline(name).name == name


@pytest.mark.parametrize("command", ["pipelines", "check"])
def test_a_command_about_all_makes_them_known(folder: Folder, command: str) -> None:
    assert set(folder.loaded_by(lambda: CliRunner().invoke(app, [command]))) == set(ALL)
    assert folder.loaded_by(lambda: resolve_pipeline("views")) == ["views"]


def faults(folder: Folder, examiner: str = "me", wrong_name: str = "") -> list[Path]:
    """The files in which something is wrong; ``wrong_name``: a pipeline in which whoever looks finds something more."""

    def find_more(files: registry.RegisteredFiles) -> dict[Path, str]:
        return {one.file: "it is wrong" for name, one in files.pipelines.items() if name == wrong_name}

    return sorted(registry.find_faults(registry.PipelineFolders((folder.path,)), examiner, find_more))


def test_files_in_which_nothing_was_wrong_are_not_loaded_again_to_find_what_is(folder: Folder) -> None:
    broken_file = folder.write("broken", "raise ZeroDivisionError\n")
    assert folder.loaded_by(lambda: faults(folder)) == ["broken", *ALL]
    assert folder.loaded_by(lambda: faults(folder)) == ["broken"]
    assert faults(folder) == [broken_file]
    registered_files()
    assert folder.loaded_by(lambda: faults(folder)) == ["broken"], "others that load them change nothing"
    file = folder.path / "clicks.py"
    file.write_text(file.read_text() + "# changed\n")
    assert folder.loaded_by(lambda: faults(folder)) == ["broken", "clicks"]
    assert folder.loaded_by(lambda: faults(folder, examiner="somebody else")) == ["broken", *ALL]


def test_what_is_wrong_with_a_pipeline_is_found_each_time(folder: Folder) -> None:
    daily_file = folder.path / "daily.py"
    for _ in range(2):
        assert faults(folder, wrong_name="daily") == [daily_file]
    assert folder.loaded_by(lambda: faults(folder)) == ["daily"]
    assert faults(folder, wrong_name="daily") == [], "nothing was, and the file is the same"
    registry.doubt_file(daily_file)
    assert faults(folder, wrong_name="daily") == [daily_file]


def test_a_name_that_comes_twice_is_found_in_files_that_are_not_loaded(folder: Folder) -> None:
    assert faults(folder) == []
    second_file = folder.write("zz_again", (folder.path / "daily.py").read_text())
    assert faults(folder) == faults(folder) == [second_file]
    (folder.path / "daily.py").unlink()
    assert faults(folder) == []


def test_new_and_changed_files_are_loaded_once(folder: Folder) -> None:
    resolve_pipeline("daily")
    write_pipeline(folder.path, "added")
    file = folder.path / "clicks.py"
    file.write_text(file.read_text() + "# changed\n")
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ["added", "clicks", "daily"]
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ["daily"]
    (folder.path / "added.py").unlink()
    with pytest.raises(UnknownPipelineError, match="no pipeline 'added'"):
        resolve_pipeline("added")
    assert "added" not in folder.index.read_text()


def refuse_clicks() -> None:
    with pytest.raises(UnknownPipelineError, match=r"clicks is defined in .*clicks\.py and in .*other\.py"):
        resolve_pipeline("clicks")
    assert resolve_pipeline("daily").name == "daily"


def test_a_name_that_comes_twice_is_refused_whether_its_files_are_known_or_not(folder: Folder) -> None:
    text = (folder.path / "clicks.py").read_text()
    other = folder.write("other", rename_pipeline(text, "'other1'"))
    resolve_pipeline("daily")
    times = other.stat()
    folder.write("other", rename_pipeline(text, "'clicks'"))
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))  # and as long as before
    refuse_clicks()
    refuse_clicks()
    other.unlink()
    assert resolve_pipeline("clicks").name == "clicks"


@pytest.mark.parametrize(
    "import_line", ["from _names import NAME", "from ._names import NAME", "from _again import NAME"]
)
def test_a_name_that_a_module_beside_gives_follows_that(folder: Folder, import_line: str) -> None:
    text = (folder.path / "clicks.py").read_text()
    folder.write("_names", "NAME = 'other'\n")
    folder.write("_again", "from _names import *\n")
    folder.write("other", f"{import_line}\n{rename_pipeline(text, 'NAME')}")
    resolve_pipeline("daily")
    assert folder.loaded_by(lambda: resolve_pipeline("other")) == ["other"]
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ["daily"]
    folder.write("_names", "NAME = 'clicks'\n")
    refuse_clicks()
    folder.write("_names", "NAME = 'other'\n")
    assert resolve_pipeline("clicks").name == "clicks"


def test_a_module_that_comes_before_the_one_beside_is_noticed(folder: Folder) -> None:
    text = (folder.path / "clicks.py").read_text()
    folder.write("_names", "NAME = 'other'\n")
    folder.write("other", f"from _names import NAME\n{rename_pipeline(text, 'NAME')}")
    resolve_pipeline("daily")
    (folder.path / "_names").mkdir()
    folder.write("_names/__init__", "NAME = 'clicks'\n")
    refuse_clicks()


ELSEWHERE = {
    "environment": "import os\nNAME = os.environ['NAMED']\n",
    "file": "with open({file!r}) as opened:\n    NAME = opened.read()\n",
    "path": "from pathlib import Path\nNAME = Path({file!r}).read_text()\n",
    "beside": "from _names import NAME\n",
    "missing": "try:\n    from _later import NAME\nexcept ImportError:\n    NAME = 'other'\n",
}


@pytest.mark.parametrize("where", ELSEWHERE)
def test_a_file_that_asks_elsewhere_for_its_names_is_loaded_each_time(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    text, file = (folder.path / "clicks.py").read_text(), tmp_path / "name"
    file.write_text("other")
    monkeypatch.setenv("NAMED", "other")
    folder.write("_names", ELSEWHERE["environment"])
    folder.write("other", ELSEWHERE[where].format(file=str(file)) + rename_pipeline(text, "NAME"))
    resolve_pipeline("daily")
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ["daily", "other"]
    file.write_text("clicks")
    monkeypatch.setenv("NAMED", "clicks")
    folder.write("_later", "NAME = 'clicks'\n")
    refuse_clicks()


def test_a_file_that_cannot_be_used_is_reported_where_the_name_may_be_in_it(folder: Folder) -> None:
    resolve_pipeline("daily")
    file = folder.write("broken", "1 / 0\n")
    assert resolve_pipeline("daily").name == "daily"
    with pytest.raises(UnknownPipelineError, match=r"cannot be used: .*broken\.py:1: ZeroDivisionError"):
        resolve_pipeline("lost")
    file.write_text((folder.path / "clicks.py").read_text().replace("clicks", "lost"))
    assert resolve_pipeline("lost").name == "lost"
    file.write_text("1 / 0\n")
    with pytest.raises(UnknownPipelineError, match="ZeroDivisionError"):
        resolve_pipeline("lost")


def swap_names(text: str) -> str:
    """An index that is whole, and wrong: files have each other's names."""
    _, _, body = text.partition("\n")
    entries = json.loads(body)
    entries["clicks.py"]["names"], entries["daily.py"]["names"] = ["daily"], ["clicks", "gone"]
    body = json.dumps(entries)
    return f"1 {content_digest(body.encode())}\n{body}"


SPOILT: dict[str, Callable[[str], str]] = {
    "empty": lambda _: "",
    "half": lambda text: text[: len(text) // 2],
    "other": lambda text: text.replace("views", "viems"),
    "later": lambda text: f"2{text[1:]}",
    "tampered": swap_names,
}


@pytest.mark.parametrize("how", SPOILT)
def test_an_index_that_is_not_what_was_written_costs_time_alone(folder: Folder, how: str) -> None:
    resolve_pipeline("daily")
    folder.index.write_text(SPOILT[how](folder.index.read_text()))
    for name in ALL:
        assert resolve_pipeline(name).name == name
        assert folder.loaded_by(partial(resolve_pipeline, name)) == [name]
    with pytest.raises(UnknownPipelineError, match="no pipeline 'gone'"):
        resolve_pipeline("gone")


def test_where_nothing_can_be_kept_all_files_are_loaded(folder: Folder) -> None:
    folder.cache.write_text("a file, and no folder")
    for _ in range(2):
        assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ALL
    assert set(registered_files().pipelines) >= set(ALL)


READING = """
import headrace as hr

{name} = hr.Pipeline(
    "{name}",
    hr.published("{of}", {{"n": int}}),
    key="n",
    what={{"all": hr.col("n").sum()}},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting("1h"),
)
"""


def test_what_a_pipeline_reads_is_loaded_with_it_and_circles_are_refused(folder: Folder) -> None:
    for name, upstream in (("above", "clicks"), ("top", "above")):
        folder.write(name, READING.format(name=name, of=upstream))
    resolve_pipeline("daily")
    assert folder.loaded_by(lambda: resolve_to_run("top")) == ["above", "clicks", "top"]
    folder.write("above", READING.format(name="above", of="top"))
    with pytest.raises(UpstreamCycleError, match="top"):
        resolve_to_run("top")
    with pytest.raises(UpstreamCycleError, match="top"):
        resolve_to_run("top")


def test_who_reads_no_pipeline_is_not_held_against_all(folder: Folder) -> None:
    """With a thousand of them that would be a million."""

    def others() -> Iterator[Pipeline]:
        raise AssertionError("nobody needs them")
        yield

    check_beside(resolve_pipeline("daily"), others())


PROCESS = """
import sys
from headrace.pipeline.loading.registry import resolve_pipeline
for _ in range(20):
    for name in ("clicks", "daily", "views"):
        assert resolve_pipeline(name).name == name
"""


@pytest.mark.slow
def test_processes_that_keep_it_at_once_do_not_disturb_each_other(folder: Folder) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", PROCESS]) for _ in range(3)]
    number = 0
    while any(process.poll() is None for process in processes):
        folder.write("added", f"NUMBER = {number}\n")
        assert resolve_pipeline("views").name == "views"
        number += 1
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [*(folder.cache / "names").glob("*.json.*")] == []
    assert folder.loaded_by(lambda: resolve_pipeline("daily")) == ["daily"]
