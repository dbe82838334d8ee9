"""A process of Python that has imported the libraries of Airflow, and runs scripts in forks of itself.

Airflow itself keeps what the environment said at its first import, so each script imports it anew. Its libraries do
not, and they are three quarters of that time, which is several seconds.
"""

import atexit
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SECONDS = 600
_LIBRARIES = (
    "alembic.migration",
    "arrow",
    "cachetools",
    "cadwyn",
    "croniter",
    "cryptography.fernet",
    "dill",
    "fastapi",
    "fsspec.core",
    "httpx",
    "importlib_metadata",
    "jinja2.nativetypes",
    "jsonschema",
    "libcst",
    "msgspec",
    "opentelemetry.sdk.trace",
    "pathspec",
    "pendulum",
    "pydantic",
    "pygtrie",
    "rich.console",
    "sqlalchemy.ext.asyncio",
    "sqlalchemy.ext.declarative",
    "sqlalchemy.ext.hybrid",
    "sqlalchemy.ext.mutable",
    "sqlalchemy.orm",
    "sqlalchemy.dialects.mysql",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.dialects.sqlite",
    "structlog",
    "svcs",
    "tabulate",
    "trio",
    "upath",
    "yaml",
)
"""What none of reads a variable that a test sets. One that is missing here is imported by each script."""

_SERVE = """
import gc, importlib, json, os, signal, sys

for name in {libraries!r}:
    importlib.import_module(name)
gc.collect()
gc.freeze()

for line in sys.stdin.buffer:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.alarm({seconds})
    status = os.waitpid(child, 0)[1]
    signal.alarm(0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    sys.exit()
signal.signal(signal.SIGALRM, signal.SIG_DFL)
for number, (path, flags) in enumerate(
    ((os.devnull, os.O_RDONLY), (asked["out"], os.O_WRONLY), (asked["err"], os.O_WRONLY))
):
    opened = os.open(path, flags)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(asked["environment"])
sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", *sys.path)]
script = compile(asked["script"], "<string>", "exec")
for name in ("asked", "child", "flags", "line", "name", "number", "opened", "path"):
    del globals()[name]
exec(script)
"""
"""Behind the loop is only a child: it ends as a program does, with its exit code and all that is done at an exit."""


@dataclass(frozen=True)
class EndedScript:
    """How a script ended."""

    returncode: int
    stdout: str
    stderr: str


def run_script(script: str, environment: Mapping[str, str]) -> EndedScript:
    """Run ``script`` to its end, as ``python -c`` does, with ``environment`` and nothing else of this process."""
    zygote = _start()
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        out_file, err_file = (Path(folder) / name for name in ("out", "err"))
        out_file.touch()
        err_file.touch()
        question = {"script": script, "environment": {**environment}, "out": str(out_file), "err": str(err_file)}
        try:
            zygote.stdin.write(json.dumps(question) + "\n")
            zygote.stdin.flush()
            answer = zygote.stdout.readline()
        except BaseException:  # the next script would get this one's answer
            zygote.kill()
            _start.cache_clear()
            raise
        assert answer, "the process that forks those of scripts has ended: its error is on standard error"
        return EndedScript(int(answer), out_file.read_text(), err_file.read_text())


@cache
def _start() -> "subprocess.Popen[str]":
    code = _SERVE.format(libraries=_LIBRARIES, seconds=_SECONDS)
    command = [sys.executable, "-c", code]
    zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop() -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended already
            zygote.communicate()

    atexit.register(stop)
    return zygote
