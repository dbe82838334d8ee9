"""Folders of data files: which they are, and putting them where a pipeline reads."""

from pathlib import Path


def paths(folder: Path) -> list[Path]:
    """Its data files in order, those of folders in it with them."""
    return sorted(folder.rglob("*.parquet"))


def land(folder: Path, landing: Path, prefix: str) -> None:
    """Put the files of a folder into a landing folder, by link, with names that begin with ``prefix``; those of folders
    in it into folders of that name.
    """
    for path in paths(folder):
        land_file(path, landing / path.parent.relative_to(folder), prefix)


def land_file(path: Path, landing: Path, prefix: str) -> None:
    """Put one file into a landing folder, by link, with a name that begins with ``prefix``."""
    landing.mkdir(parents=True, exist_ok=True)
    (landing / f"{prefix}-{path.name}").hardlink_to(path)
