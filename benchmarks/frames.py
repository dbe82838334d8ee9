"""How deep the code is: ``python -m benchmarks.frames``.

Runs an epoch of two records on the executor ``local`` and prints how many frames of the product's code lie between
``hr.open(...).run()`` and the kernel's step, and of how many files and folders functions are called (what a module does
while it is imported is left out). It counts calls and measures no time, so the figures are the same on every machine.
``--stack`` prints the frames, ``--files`` the files.
"""

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any

import headrace as hr
import headrace_snapshots
from headrace.kernel.step import step_stage

FOLDERS = tuple(str(Path(package.__file__ or "").parent) for package in (hr, headrace_snapshots))
RECORDS = """{"user": "a", "amount": 1, "at": "2026-01-01T00:00:00Z"}
{"user": "b", "amount": 2, "at": "2026-01-01T00:30:00Z"}
"""


@dataclass
class Calls:
    """The calls of the product's code while it is observed: the files of the functions, and each stack of the kernel's
    step.
    """

    files: set[str] = field(default_factory=set)
    stacks: list[list[FrameType]] = field(default_factory=list)

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Observe this thread and those that begin meanwhile."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(FOLDERS) or code.co_name == "<module>":
            return
        self.files.add(code.co_filename)
        if code is step_stage.__code__:
            self.stacks.append(_stack(frame))


def _stack(frame: FrameType | None) -> list[FrameType]:
    """The frames of the product from the outermost to ``frame``."""
    frames: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(FOLDERS):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def observed_run() -> Calls:
    """The calls of a run that computes and commits one epoch of two records."""
    calls = Calls()
    with tempfile.TemporaryDirectory() as folder:
        landing = Path(folder, "landing")
        landing.mkdir()
        (landing / "records.json").write_text(RECORDS, encoding="utf-8")
        records = hr.json("landing", {"user": str, "amount": int, "at": datetime}).event_time("at", bound="1h")
        sums = {"total": hr.col("amount").sum()}
        pipeline = hr.Pipeline("sums", records, key="user", what=sums, where=hr.FixedWindows("1h"), when=hr.on_update())
        deployment = hr.open(Path(folder).as_uri())
        with calls.observed():
            deployment[pipeline].run(executor="local")
    return calls


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stack", action="store_true", help="print the frames")
    parser.add_argument("--files", action="store_true", help="print the files")
    given = parser.parse_args()
    calls = observed_run()
    (stack, *_) = calls.stacks
    folders = {str(Path(file).parent) for file in calls.files}
    print(f"{len(stack)} frames in {len({frame.f_code.co_filename for frame in stack})} files to the kernel's step")
    print(f"functions of {len(calls.files)} files in {len(folders)} folders are called")
    for frame in stack if given.stack else ():
        print(f"  {_shown(frame.f_code.co_filename)}: {frame.f_code.co_qualname}")
    for file in sorted(calls.files) if given.files else ():
        print(f"  {_shown(file)}")


def _shown(path: str) -> str:
    folder = next(folder for folder in FOLDERS if path.startswith(folder))
    return str(Path(path).relative_to(Path(folder).parent))


if __name__ == "__main__":
    main()
