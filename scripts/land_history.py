"""Land the history of a git repository as JSON lines: who changed which file, and when.

A line is a file of a commit: ``commit``, ``author``, ``file`` and ``at``, when the commit was made, in UTC. Lines stand
in the order of ``git log --reverse``. Merges are left out: what they merge has commits of its own.

A landing goes from the tip of the last one to ``HEAD``, in so many files. Their names begin with the number of commits
up to that tip, so that they sort by time. They say how many files there are, so that a landing that was cut off is
finished before the next one. Landing again without new commits changes nothing.
"""

import argparse
import json
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from headrace.errors import FixConfigError, FixDataError
from headrace_snapshots.store import ObjectStore, open_store

LANDING = "landing/history"
FILES = 10
_NAME = re.compile(
    rf"{LANDING}/(?P<commits>\d{{8}})-(?P<tip>[0-9a-f]{{40,64}})-(?P<number>\d{{4}})of(?P<files>\d{{4}})\.jsonl"
)
_COMMIT = "\x01%H\x02%aN\x02%aE\x02%ct"
"""What git says of a commit before its files; no path and no name has these control characters."""

Change = Mapping[str, str]


@dataclass(frozen=True)
class Landing:
    """All commits up to ``tip``, ``commits`` in number, that no landing before it has, in so many ``files``."""

    commits: int
    tip: str
    files: int

    def path(self, number: int) -> str:
        """Its file ``number``, from 1."""
        return f"{LANDING}/{self.commits:08}-{self.tip}-{number:04}of{self.files:04}.jsonl"


def changes(clone: Path, tip: str = "HEAD", old_tip: str | None = None, anonymous: bool = False) -> Iterator[Change]:
    """The lines of all commits up to ``tip``, but for those up to ``old_tip``.

    ``author`` is the author's name, or with ``anonymous`` eight digits of a hash of the address: the same author has
    the same digits. Bytes of a path that are not UTF-8 are written as ``\\xff``.
    """
    upto = [tip] if old_tip is None else [tip, f"^{old_tip}"]
    options = ("--no-merges", "--no-renames", "--reverse", "--name-only", "-z", f"--format={_COMMIT}")
    for commit in git(clone, "log", *options, *upto).split("\x01")[1:]:
        commit_header, _, files = commit.partition("\0")
        commit_hash, name, address, seconds = commit_header.split("\x02")
        digits = sha256(address.lower().encode()).hexdigest()[:8]
        time = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for file in files.removeprefix("\n").split("\0"):
            if file:
                yield {"commit": commit_hash, "author": digits if anonymous else name, "file": file, "at": time}


def git(clone: Path, *words: str) -> str:
    """What git says of ``clone``. Raises FixConfigError with its own words if it refuses."""
    try:
        process = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=True)
    except FileNotFoundError:
        raise FixConfigError("the history of a clone is read by git: install it") from None
    except subprocess.CalledProcessError as error:
        problem = error.stderr.decode(errors="backslashreplace").strip()
        raise FixConfigError(f"git {words[0]} in {clone}: {problem}") from None
    return process.stdout.decode(errors="backslashreplace")


def landings(store: ObjectStore) -> dict[Landing, set[int]]:
    """The landings of before, oldest first, each with the numbers of its files that are there."""
    by_landing: dict[Landing, set[int]] = {}
    for info in store.list(f"{LANDING}/"):
        name = _NAME.fullmatch(info.path)
        if name is None:
            raise FixConfigError(f"{info.path} was not landed by this script: land under a root of its own")
        landing = Landing(int(name["commits"]), name["tip"], int(name["files"]))
        by_landing.setdefault(landing, set()).add(int(name["number"]))
    return dict(sorted(by_landing.items(), key=lambda item: item[0].commits))


def land(clone: Path, root: str, files: int = FILES, tip: str = "HEAD", anonymous: bool = False) -> list[str]:
    """Land what is new in ``clone`` up to ``tip`` under the root URI, in ``files`` files; their paths.

    Raises FixDataError if what was landed before is not part of the history any more.
    """
    if files < 1:
        raise FixConfigError(f"{files} files: want at least one")
    store = open_store(root)
    newest = git(clone, "rev-parse", "--verify", f"{tip}^{{commit}}").strip()
    old_tip: str | None = None
    paths: list[str] = []
    for landing, numbers in landings(store).items():
        if len(numbers) < landing.files:
            paths += _write(store, landing, [*changes(clone, landing.tip, old_tip, anonymous)], numbers)
        old_tip = landing.tip
    if old_tip == newest:
        return paths
    if old_tip is not None:
        _check_grown(clone, old_tip, newest)
    landing = Landing(int(git(clone, "rev-list", "--count", newest)), newest, files)
    return paths + _write(store, landing, [*changes(clone, newest, old_tip, anonymous)])


def _check_grown(clone: Path, old_tip: str, newest: str) -> None:
    lost_count = git(clone, "rev-list", "--count", old_tip, f"^{newest}").strip()
    if lost_count != "0":
        raise FixDataError(
            f"{lost_count} commits that were landed are not part of {newest[:12]}: land under another root"
        )


def _write(
    store: ObjectStore, landing: Landing, rows: Sequence[Change], landed_numbers: Collection[int] = ()
) -> list[str]:
    """Write the files of ``landing`` but for those of ``landed_numbers``; their paths."""
    cuts = [len(rows) * k // landing.files for k in range(landing.files + 1)]
    paths = []
    for number, (start, end) in enumerate(pairwise(cuts), start=1):
        if number not in landed_numbers:
            data = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows[start:end]).encode()
            paths.append(store.write(landing.path(number), data).path)
    return paths


def main(arguments: Sequence[str] | None = None) -> None:
    """``land_history.py CLONE --root URI [--files F] [--tip REVISION] [--anonymous]``."""
    parser = argparse.ArgumentParser(description="Land the history of a git repository as JSON lines.")
    parser.add_argument("clone", type=Path, help="a clone of it, with its history")
    parser.add_argument("--root", required=True, help="file:///folder or s3://bucket/prefix")
    parser.add_argument("--files", type=int, default=FILES, help=f"files of this landing (default {FILES})")
    parser.add_argument("--tip", default="HEAD", help="up to which commit (default HEAD)")
    parser.add_argument("--anonymous", action="store_true", help="digits in place of authors' names")
    options = parser.parse_args(arguments)
    paths = land(options.clone, options.root, options.files, options.tip, options.anonymous)
    print(f"landed {len(paths)} files: {paths[0]} to {paths[-1]}" if paths else "nothing is new")


if __name__ == "__main__":
    main()
