"""``python -m scripts.release``: a version from a clean commit. Wheel, sdist, site and notes are made, then tried out
on each Python as users will have them; only then comes the tag. Nothing is uploaded.

With ``--rehearse`` all of it but the tag, also before the changelog says a date.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import Final

from scripts.public_api import find_unlisted

REPOSITORY: Final = Path(__file__).resolve().parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13")
_NOT_YET: Final = "not released yet"
_TWINE: Final = "twine>=6,<7"
_FOLLOWED_TESTS: Final = (
    "tests/process/test_golden_root.py",
    "tests/process/test_replays_of_golden_roots.py",
    "tests/snapshots/test_golden.py",
    "tests/docs/test_pages.py::test_blocks_of[docs/tutorial.md]",
)
"""Tests that run against the wheel: roots of every older format go on, and the tutorial does what it shows."""
_STAGED_FILES: Final = (
    "docs",
    "tests/__init__.py",
    "tests/docs",
    "tests/golden",
    "tests/process/__init__.py",
    "tests/process/golden_bills.py",
    "tests/process/golden_clicks.py",
    "tests/process/golden_roads.py",
    "tests/process/golden_roots.py",
    "tests/process/golden_sales.py",
    "tests/process/golden_shop.py",
    "tests/process/golden_tills.py",
    "tests/process/golden_visits.py",
)
_THEIR_NEEDS: Final = ("markdown-it-py>=3", "pytest>=8.3")


class ReleaseError(Exception):
    """What stands against the release, and what to do about it."""


@dataclass(frozen=True)
class Heading:
    """The heading of a version in the changelog: its ``date`` is None if it has none yet; and what is below it."""

    date: str | None
    notes: str


def heading_of(changelog: str, version: str) -> Heading:
    """The section of ``version``. Raises ReleaseError if there is none, or nothing in it."""
    section = rf"^## {re.escape(version)} \((?P<date>[^)]*)\)\n(?P<notes>.*?)(?=^## |\Z)"
    match = re.search(section, changelog, re.MULTILINE | re.DOTALL)
    if match is None or not match["notes"].strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}: write '## {version} (date)', and what changed")
    is_dated = re.fullmatch(r"\d{4}-\d{2}-\d{2}", match["date"]) is not None
    if not is_dated and match["date"] != _NOT_YET:
        raise ReleaseError(f"CHANGELOG.md: {match['date']!r} is no date: write '## {version} (YYYY-MM-DD)'")
    return Heading(match["date"] if is_dated else None, match["notes"].strip() + "\n")


def check_ready(repository: Path, version: str, heading: Heading, *, rehearses: bool) -> None:
    """Raise ReleaseError for what would make the tag say something else than what was built."""
    if status := _git(repository, "status", "--porcelain"):
        raise ReleaseError(f"the working tree has changes, such as {status.splitlines()[0].strip()}: commit them first")
    if _git(repository, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"there is a tag v{version} already: give pyproject.toml the next version")
    if heading.date is None and not rehearses:
        raise ReleaseError(f"CHANGELOG.md says '{_NOT_YET}': write the date of the release, and commit it")


def versions_page(folder: Path) -> None:
    """Write the pages that lead to the versions whose sites are in ``folder``: the newest first."""
    versions = sorted(
        (place.name for place in folder.iterdir() if (place / "index.html").is_file()), key=_as_numbers, reverse=True
    )
    links = "\n".join(f'<li><a href="{version}/index.html">{version}</a></li>' for version in versions)
    (folder / "versions.json").write_text(json.dumps(versions) + "\n")
    (folder / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>Headrace</title>\n<h1>Headrace</h1>\n<ul>\n{links}\n</ul>\n'
    )


def _as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _git(repository: Path, *arguments: str) -> str:
    process = subprocess.run(["git", "-C", repository, *arguments], capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise ReleaseError(f"git {' '.join(arguments)}: {process.stderr.strip()}")
    return process.stdout.strip()


def _uv() -> str:
    return shutil.which("uv") or str(REPOSITORY / ".headrace/uv/bin/uv")


def _run(*command: str | Path, folder: Path = REPOSITORY, **variables: str) -> str:
    """What ``command`` prints; in an environment that leads to no file of this repository. Raises ReleaseError."""
    ours = ("PYTHONPATH", "VIRTUAL_ENV", "HEADRACE_", "AWS_")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    process = subprocess.run(
        [*map(str, command)], cwd=folder, env=plain | variables, capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        raise ReleaseError(
            f"{' '.join(map(str, command))} ended with {process.returncode}:\n{process.stdout}{process.stderr}"
        )
    return process.stdout


@contextmanager
def _step(name: str) -> Iterator[None]:
    print(f"{name} ...", end=" ", flush=True)
    began = time.monotonic()
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def _build(dist: Path) -> tuple[Path, Path]:
    """The wheel, built from the sdist, and the sdist; the same bytes each time that the commit is built."""
    dist.mkdir(exist_ok=True)
    for file in (*dist.glob("*.whl"), *dist.glob("*.tar.gz")):
        file.unlink()
    _run(_uv(), "build", "--out-dir", dist, SOURCE_DATE_EPOCH=_git(REPOSITORY, "log", "-1", "--format=%ct"))
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    _run(_uv(), "tool", "run", "--from", _TWINE, "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def _site(folder: Path, version: str) -> None:
    place = folder / version
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    sphinx = Path(sys.executable).with_name("sphinx-build")
    with tempfile.TemporaryDirectory() as doctrees:
        _run(sphinx, "-q", "-W", "--keep-going", "-d", doctrees, "docs", place)
    versions_page(folder)


def _stage_tests(folder: Path) -> Path:
    """A folder with the tests that are followed, and without the code that they test."""
    for name in (*_STAGED_FILES, *(test.partition("::")[0] for test in _FOLLOWED_TESTS)):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_dir():
            shutil.copytree(REPOSITORY / name, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(REPOSITORY / name, target)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: of this repository\n")
    return folder


def _find_python(python: str) -> str:
    """An interpreter of that version: on PATH, or one of pyenv's; else its name, by which uv looks for one, or gets it.
    ``python`` may be a path.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    program = f"python{python}"
    for candidate in (shutil.which(program), *map(str, sorted(pyenv.glob(f"{python}.*/bin/{program}"), reverse=True))):
        # pyenv's shims are there and do not work
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return python


def _environment(folder: Path, python: str, *packages: str | Path) -> Path:
    """The interpreter of an environment with ``packages`` and nothing of this repository."""
    _run(_uv(), "venv", "--quiet", "--python", _find_python(python), folder)
    interpreter = folder / "bin" / "python"
    _run(_uv(), "pip", "install", "--quiet", "--python", interpreter, *packages)
    place = _run(interpreter, "-c", "import headrace; print(headrace.__file__)", folder=folder).strip()
    if not Path(place).is_relative_to(folder):
        raise ReleaseError(f"Python {python} imports headrace from {place}, and not what was installed in {folder}")
    return interpreter


def _try_out(python: str, version: str, wheel: Path, sdist: Path) -> None:
    """Install the wheel and the sdist on a ``python``, find all extras installable, run what is followed."""
    with tempfile.TemporaryDirectory(prefix="headrace-release-") as work:
        folder = Path(work)
        interpreter = _environment(folder / "wheel", python, f"headrace[delta,test] @ {wheel.as_uri()}", *_THEIR_NEEDS)
        if (shown_version := _run(interpreter.with_name("headrace"), "--version").split()[-1]) != version:
            raise ReleaseError(f"headrace --version says {shown_version} on Python {python}, and {version} is released")
        override = folder / "overrides.txt"
        override.write_text("pyspark-client; sys_platform == 'never'\n")
        everything = f"headrace[all] @ {wheel.as_uri()}"
        _run(_uv(), "pip", "install", "--dry-run", "--python", interpreter, "--overrides", override, everything)
        test_folder = _stage_tests(folder / "staged")
        command: list[str | Path] = [
            interpreter,
            "-m",
            "pytest",
            "-q",
            "--noconftest",
            "-p",
            "no:cacheprovider",
            *_FOLLOWED_TESTS,
        ]
        _run(*command, folder=test_folder, HEADRACE_CACHE=str(folder / "cache"))
        _environment(folder / "sdist", python, sdist)


def _steps(version: str, pythons: Sequence[str], site: Path, notes: str) -> None:
    dist = REPOSITORY / "dist"
    with _step("build wheel and sdist"):
        wheel, sdist = _build(dist)
    with _step("build the site"):
        _site(site, version)
    (dist / f"notes-{version}.md").write_text(notes)
    for python in pythons:
        with _step(f"try out on Python {python}"):
            _try_out(python, version, wheel, sdist)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 once the version is tagged, or was rehearsed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="everything but the tag")
    parser.add_argument(
        "--python", nargs="+", default=PYTHONS, help="versions to try out (default: all that are claimed)"
    )
    parser.add_argument(
        "--site", type=Path, default=REPOSITORY / "dist" / "site", help="sites of other versions there stay"
    )
    options = parser.parse_args(arguments)
    version = installed("headrace")
    try:
        heading = heading_of((REPOSITORY / "CHANGELOG.md").read_text(), version)
        check_ready(REPOSITORY, version, heading, rehearses=options.rehearse)
        if names := find_unlisted():
            raise ReleaseError(f"{names[0]} and others are new: python -m scripts.public_api --write, and commit that")
        _steps(version, options.python, options.site.resolve(), heading.notes)
        if not options.rehearse:
            _git(REPOSITORY, "tag", "--annotate", f"v{version}", "--message", f"Headrace {version}\n\n{heading.notes}")
    except ReleaseError as error:
        print(f"\nrelease: {error}", file=sys.stderr)
        return 1
    print(f"{'rehearsed' if options.rehearse else 'tagged'} {version}: dist/ has wheel, sdist, site and notes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
