"""A checkout: where its modules lie, and which of its files may name one."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BASES: Final = {
    "headrace": "jobs",
    "headrace_snapshots": "snapshots",
    "headrace_airflow": "plugins",
    "headrace_lab": "lab",
}
"""The folder of each package."""

TEXTS: Final = frozenset(
    {".py", ".pyi", ".md", ".toml", ".rst", ".yml", ".yaml", ".cfg", ".json", ".sh", ".txt", ".html", ".js", ".ini"}
)
NAMED_TEXTS: Final = frozenset({"Makefile", "run", "Dockerfile"})
UNTOUCHED: Final = ("CHANGELOG.md", "uv.lock")
MOST_BYTES: Final = 400_000


@dataclass(frozen=True)
class Checkout:
    root: Path

    def path_of(self, module: str) -> Path:
        """The file of a module, or of the package."""
        path = self.root / BASES[module.partition(".")[0]] / module.replace(".", "/")
        file = path.with_suffix(".py")
        return path / "__init__.py" if path.is_dir() and not file.exists() else file

    def module_of(self, file: Path) -> str:
        """The name of the module in ``file``."""
        parts = file.relative_to(self.root).with_suffix("").parts
        parts = parts[1:] if parts[0] in BASES.values() else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def modules(self) -> dict[str, Path]:
        """The file of each module of the packages."""
        folders = [self.root / base / package for package, base in BASES.items()]
        return {self.module_of(file): file for folder in folders for file in folder.rglob("*.py")}

    def text_files(self) -> list[Path]:
        """Files under version control that may name a module. Golden files stay, and the plans of this tool."""
        return [self.root / name for name in self.git("ls-files").split("\n") if self._is_text(name)]

    def _is_text(self, name: str) -> bool:
        file = self.root / name
        golden = name.startswith("tests/golden/") or ("/golden/" in name and not name.endswith(".py"))
        if golden or name in UNTOUCHED or name.startswith("scripts/rehouse/"):
            return False
        fitting = file.suffix in TEXTS or file.name in NAMED_TEXTS
        return fitting and file.is_file() and file.stat().st_size < MOST_BYTES

    def git(self, *arguments: str, stdin: str | None = None) -> str:
        """What a command of git prints."""
        command = ["git", *arguments]
        return subprocess.run(command, cwd=self.root, check=True, text=True, stdout=subprocess.PIPE, input=stdin).stdout
