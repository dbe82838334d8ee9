"""``headrace new``: a pipeline, its unit test, and sample data that run at once, for the user to change."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from headrace.errors import FixConfigError
from headrace.pipeline.identity.names import NAME

_DATA = "data"
_FILES = {
    "{name}.py": "pipeline.py.txt",
    "tests/{name}.yaml": "test.yaml.txt",
    **{f"{_DATA}/landing/{{name}}/orders-{number}.jsonl": f"orders-{number}.jsonl" for number in (1, 2, 3)},
}
"""Where each file of the example goes. Those that end in .txt are templates, of the name."""


class NewPipelineError(FixConfigError, code="config.new_pipeline"):
    """A name that a pipeline cannot have, or files that are in the way."""


@dataclass(frozen=True)
class Example:
    """The files that were written, first the pipeline's, then that of its test; the root of its data."""

    files: tuple[Path, ...]
    root: str

    @property
    def next_steps(self) -> list[str]:
        """Commands for a shell."""
        where = [str(self.files[0]), "--root", self.root]
        return [
            shlex.join(["headrace", "check", str(self.files[0])]),
            shlex.join(["headrace", "test", str(self.files[1])]),
            shlex.join(["headrace", "run", *where, "--files-per-epoch", "1"]),
            shlex.join(["headrace", "read", *where]),
        ]

    def to_json(self) -> dict[str, Any]:
        """A JSON value: the files, and what to do next."""
        return {"files": [str(file) for file in self.files], "next": self.next_steps}


def write_example(name: str, folder: Path) -> Example:
    """Write the example under ``folder``; nothing if a file of it is there already. Raises NewPipelineError."""
    if not NAME.fullmatch(name):
        raise NewPipelineError(f"{name!r} cannot name a pipeline: use lower case letters, digits and _, a letter first")
    texts = {folder / place.format(name=name): text for place, text in _texts(name).items()}
    if there := [str(file) for file in texts if file.exists()]:
        raise NewPipelineError(
            f"nothing was written, since this is there already: {', '.join(there)}. Choose another name or --folder"
        )
    try:
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text)
    except OSError as error:
        raise NewPipelineError(
            f"{error.filename} cannot be written: {error.strerror}. Choose another --folder"
        ) from error
    return Example(tuple(texts), (folder / _DATA).resolve().as_uri())


def _texts(name: str) -> Mapping[str, str]:
    """What goes where."""
    example = files("headrace.cli") / "example"
    texts = {place: (example / template).read_text(encoding="utf-8") for place, template in _FILES.items()}
    return {place: text.format(name=name) if _FILES[place].endswith(".txt") else text for place, text in texts.items()}
