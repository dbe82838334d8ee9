"""A page, run as a reader would: its blocks one after another, in one folder and one namespace. What a page keeps in
/tmp is kept in that folder.

Python runs in this process, and so do ``headrace`` commands; whatever else a console shows goes to a shell. What a
console shows below a command is what the command must print (``...`` stands for anything). A comment before a block
says what is special about it:

``<!-- test: file delays.py -->``   it is the content of that file
``<!-- test: output -->``           it is what the Python block before it prints
``<!-- test: fails -->``            its commands fail
``<!-- test: eventually -->``       its commands do so after some time, when somebody else has done something
``<!-- test: shown -->``            it is only shown, since it needs what a test does not have
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from headrace.cli.main import app
from tests.docs.pages import ROOT, Block

_COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n?", re.MULTILINE)
_EXPORT = re.compile(r"export (?P<name>\w+)=(?P<value>.*)")
_LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Command:
    """A command of a console, and what stands below it."""

    text: str
    output: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console, in order."""
    matches = list(_COMMAND.finditer(block.text))
    ends = [each.start() for each in matches[1:]] + [len(block.text)]
    for each, end in zip(matches, ends, strict=True):
        yield Command(each["command"].replace("\\\n", " "), block.text[each.end() : end].strip())


@dataclass
class Reader:
    """Somebody who tries a page in ``folder``. What the environment becomes ends with ``monkeypatch``."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    names: dict[str, Any] = field(default_factory=dict)
    printed_text: str = ""

    _patiently = Retrying(
        stop=stop_after_delay(300), wait=wait_fixed(1), retry=retry_if_exception_type(AssertionError), reraise=True
    )

    def start(self) -> None:
        """A shell in the folder, with nothing of this machine's settings, and a module for Python."""
        self.monkeypatch.chdir(self.folder)
        self.monkeypatch.syspath_prepend(str(self.folder))
        for name in [name for name in os.environ if name.startswith("HEADRACE_") and name != "HEADRACE_CACHE"]:
            self.monkeypatch.delenv(name)
        self.monkeypatch.setenv("HEADRACE_LOGS", str(self.folder / ".logs"))
        self.monkeypatch.setenv("PWD", str(self.folder))
        self.monkeypatch.setenv("COLUMNS", "120")
        path = [str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)]
        self.monkeypatch.setenv("PATH", os.pathsep.join(path))
        module = ModuleType("page")
        self.monkeypatch.setitem(sys.modules, module.__name__, module)
        self.names = module.__dict__

    def follow(self, block: Block) -> None:
        """Do what ``block`` shows."""
        block = replace(block, text=block.text.replace("/tmp/", f"{self.folder}/"))
        match block.directive:
            case ("shown", *_):
                pass
            case ("file", name):
                file = self.folder / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text)
            case ("output",):
                self._compare(block, block.text, self.printed_text)
            case ("eventually",):
                self._patiently(self.follow, replace(block, directive=()))
            case _ if block.language == "python":
                self._python(block)
            case _ if block.language == "console":
                for command in commands(block):
                    self._console(block, command)

    def _python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
        printed_stream = io.StringIO()
        with contextlib.redirect_stdout(printed_stream):
            exec(code, self.names)
        self.printed_text = printed_stream.getvalue()

    def _console(self, block: Block, command: Command) -> None:
        match = _EXPORT.fullmatch(command.text.partition(" #")[0].strip())
        if match is not None:
            value = os.path.expandvars(match["value"])
            self.monkeypatch.setenv(match["name"], value)
            return
        words = shlex.split(os.path.expandvars(command.text), comments=True)
        code, stdout, everything = self._headrace(words[1:]) if words[0] == "headrace" else self._shell(command.text)
        fails = block.directive == ("fails",)
        assert (code != 0) is fails, f"{block.place}: {command.text}\nended with {code}:\n{everything}"
        if command.output:
            self._compare(block, command.output, everything if fails else stdout)

    def _headrace(self, words: list[str]) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, words, prog_name="headrace", catch_exceptions=False)
        return result.exit_code, result.stdout, result.output

    def _shell(self, text: str) -> tuple[int, str, str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*_OWN, os.environ.get("PYTHONPATH", "")])}
        result = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, env=environment)
        return result.returncode, result.stdout, result.stdout + result.stderr

    def _compare(self, block: Block, expected: str, output: str) -> None:
        like = doctest.OutputChecker().check_output(expected.rstrip() + "\n", output.rstrip() + "\n", _LIKE)
        assert like, f"{block.place} shows\n\n{expected}\nand it is\n\n{output}"


_OWN = [str(ROOT / folder) for folder in ("jobs", "snapshots", "plugins")]
