"""``scripts/land_history.py``: what it lands of a repository that grows, is cut off, and is rewritten."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from headrace.errors import FixConfigError, FixDataError
from headrace.ext.stores import open_store
from scripts.land_history import land, main

ANN, BOB = ("Ann", "ann@example.org"), ("Bob Bø", "Bob@example.org")
ODD = ['sub/naïve "quoted".txt', "line\nbreak", "tab\tand space"]


class Repository:
    """A repository whose commits come a minute apart."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._minutes = 0
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str, author: tuple[str, str] = ANN) -> str:
        moment = f"2026-01-01T00:{self._minutes:02}:00+0100"
        environment = {
            **os.environ,
            **{
                f"GIT_{who}_{what}": value
                for who in ("AUTHOR", "COMMITTER")
                for what, value in zip(("NAME", "EMAIL"), author, strict=True)
            },
            "GIT_AUTHOR_DATE": "2020-01-01T00:00:00Z",
            "GIT_COMMITTER_DATE": moment,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        completed_process = subprocess.run(
            ["git", *words], cwd=self.folder, env=environment, check=True, capture_output=True, text=True
        )
        return completed_process.stdout.strip()

    def commit(self, *files: str, author: tuple[str, str] = ANN) -> str:
        """A commit that changes ``files``; its hash."""
        self._minutes += 1
        for file in files:
            path = self.folder / file
            path.parent.mkdir(exist_ok=True)
            path.write_text(str(self._minutes))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "Changed", author=author)
        return self.git("rev-parse", "HEAD")


def lines(root: str) -> list[dict[str, str]]:
    """What was landed, in the order of names."""
    store = open_store(root)
    return [json.loads(line) for info in store.list("landing/history/") for line in store.read(info.path).splitlines()]


def test_a_line_is_a_file_of_a_commit(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    first = repository.commit("a", "b")
    second = repository.commit(*ODD, author=BOB)
    repository.commit()  # of no file
    assert len(land(repository.folder, root, files=2)) == 2
    moments = ["2025-12-31T23:01:00Z", "2025-12-31T23:02:00Z"]
    expected = [(first, "Ann", "a", moments[0]), (first, "Ann", "b", moments[0])]
    expected += [(second, "Bob Bø", file, moments[1]) for file in sorted(ODD)]
    assert [tuple(line.values()) for line in lines(root)] == expected
    assert [*lines(root)[0]] == ["commit", "author", "file", "at"]


def test_a_merge_has_only_what_it_merges_and_a_rename_is_two_files(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    repository.commit("a", "b")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("c", author=BOB)
    repository.git("checkout", "--quiet", "main")
    repository.git("mv", "b", "d")
    repository.commit()
    repository.git("merge", "--quiet", "--no-ff", "-m", "Merged", "side")
    land(repository.folder, root)
    assert [(line["author"], line["file"]) for line in lines(root)] == [
        *(("Ann", "a"), ("Ann", "b"), ("Bob Bø", "c"), ("Ann", "b"), ("Ann", "d"))
    ]


def test_a_landing_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    repository.commit("a", "b", "c")
    repository.commit("d")
    paths = land(repository.folder, root, files=3)
    lines_before = lines(root)
    assert land(repository.folder, root, files=3) == []
    repository.commit("e")
    further = land(repository.folder, root, files=1)
    assert [info.path for info in open_store(root).list("landing/")] == paths + further
    assert [line["file"] for line in lines(root)] == [*(line["file"] for line in lines_before), "e"]


def test_a_landing_that_was_cut_off_is_finished_before_the_next(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    repository.commit(*"abcd")
    paths = land(repository.folder, root, files=4)
    whole = lines(root)
    store = open_store(root)
    kept_info = store.stat(paths[0])
    for path in paths[2:]:
        store.delete(path)
    repository.commit("e")
    assert land(repository.folder, root, files=1)[:2] == paths[2:]
    assert store.stat(paths[0]) == kept_info
    assert lines(root)[:4] == whole
    assert lines(root)[4]["file"] == "e"


def test_a_history_that_was_rewritten_is_refused(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    repository.commit("a")
    repository.commit("b")
    land(repository.folder, root)
    landed_lines = lines(root)
    repository.git("reset", "--quiet", "--hard", "HEAD~1")
    repository.commit("c")
    with pytest.raises(FixDataError, match=r"1 commits that were landed are not part of .* land under another root"):
        land(repository.folder, root)
    assert lines(root) == landed_lines


def test_authors_can_be_digits_and_an_address_has_the_same_ones(tmp_path: Path) -> None:
    repository, root = Repository(tmp_path / "clone"), (tmp_path / "root").as_uri()
    repository.commit("a", author=BOB)
    repository.commit("b", author=("Robert", "bob@example.org"))
    repository.commit("c")
    land(repository.folder, root, anonymous=True)
    bob, robert, ann = (line["author"] for line in lines(root))
    assert bob == robert != ann
    assert {len(author) for author in (bob, ann)} == {8}


def test_what_cannot_be_landed_says_why(tmp_path: Path) -> None:
    root = (tmp_path / "root").as_uri()
    (tmp_path / "folder").mkdir()
    with pytest.raises(FixConfigError, match=r"git rev-parse in .*folder: fatal: not a git repository"):
        land(tmp_path / "folder", root)
    repository = Repository(tmp_path / "clone")
    repository.commit("a")
    with pytest.raises(FixConfigError, match="0 files: want at least one"):
        land(repository.folder, root, files=0)
    open_store(root).write("landing/history/mine.jsonl", b"")
    with pytest.raises(FixConfigError, match=r"mine.jsonl was not landed by this script"):
        land(repository.folder, root)


def test_it_lands_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository(tmp_path / "clone")
    commit = repository.commit("a")
    words = [str(repository.folder), "--root", tmp_path.as_uri(), "--files", "1"]
    main(words)
    main(words)
    path = f"landing/history/00000001-{commit}-0001of0001.jsonl"
    assert capsys.readouterr().out == f"landed 1 files: {path} to {path}\nnothing is new\n"
