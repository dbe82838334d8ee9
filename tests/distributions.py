"""A distribution as pip leaves it, made of its pyproject.toml: metadata that Python finds, no network and no build."""

import tomllib
from pathlib import Path


def write_distribution(pyproject: str, site: Path) -> Path:
    """Write to ``site`` what declares the distribution of that ``pyproject``; its modules must be importable."""
    project = tomllib.loads(pyproject)["project"]
    folder = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, parts in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in parts.items()), ""]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return folder
