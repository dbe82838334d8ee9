"""A release says what it was made of, or stops before anything is built."""

import subprocess
from pathlib import Path

import pytest

from scripts.release import Heading, ReleaseError, check_ready, heading_of, versions_page

CHANGELOG = """# Changelog

## 0.2.0 (not released yet)

- New.

## 0.1.0 (2026-11-27)

**Pipelines**

- First.
"""
DATED_HEADING, OPEN = Heading("2026-11-27", "- New.\n"), Heading(None, "- New.\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit, tagged v0.1.0."""
    (tmp_path / "file").write_text("1")
    for command in (
        ("init", "-q"),
        ("config", "user.email", "a@example.com"),
        ("config", "user.name", "a"),
        ("add", "file"),
        ("commit", "-qm", "first"),
        ("tag", "v0.1.0"),
    ):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    return tmp_path


def test_notes_are_the_section_of_the_version() -> None:
    assert heading_of(CHANGELOG, "0.2.0") == OPEN
    assert heading_of(CHANGELOG, "0.1.0") == Heading("2026-11-27", "**Pipelines**\n\n- First.\n")


@pytest.mark.parametrize(
    ("changelog", "version", "why"),
    [
        (CHANGELOG, "0.3.0", "says nothing of 0.3.0"),
        (CHANGELOG, "0.1", "says nothing of 0.1:"),
        (CHANGELOG.replace("- New.", ""), "0.2.0", "says nothing of 0.2.0"),
        (CHANGELOG.replace("2026-11-27", "soon"), "0.1.0", "'soon' is no date"),
    ],
)
def test_a_version_without_notes_is_none(changelog: str, version: str, why: str) -> None:
    with pytest.raises(ReleaseError, match=why):
        heading_of(changelog, version)


def test_a_dated_version_of_a_clean_commit_is_ready(repository: Path) -> None:
    check_ready(repository, "0.2.0", DATED_HEADING, rehearses=False)
    check_ready(repository, "0.2.0", OPEN, rehearses=True)


def test_what_stands_against_a_release_is_said(repository: Path) -> None:
    with pytest.raises(ReleaseError, match="write the date of the release"):
        check_ready(repository, "0.2.0", OPEN, rehearses=False)
    with pytest.raises(ReleaseError, match=r"a tag v0\.1\.0 already"):
        check_ready(repository, "0.1.0", DATED_HEADING, rehearses=True)
    (repository / "file").write_text("2")
    with pytest.raises(ReleaseError, match="changes, such as M file: commit them"):
        check_ready(repository, "0.2.0", DATED_HEADING, rehearses=True)


def test_the_newest_version_leads_the_page_of_versions(tmp_path: Path) -> None:
    for version in ("0.9.0", "0.10.0", "0.1.1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").write_text("")
    (tmp_path / "half").mkdir()
    versions_page(tmp_path)
    assert (tmp_path / "versions.json").read_text() == '["0.10.0", "0.9.0", "0.1.1"]\n'
    page = (tmp_path / "index.html").read_text()
    assert page.index("0.10.0/index.html") < page.index("0.9.0/index.html") < page.index("0.1.1/index.html")
