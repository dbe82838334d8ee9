"""What every source must do where a definition names it, as tests for classes that inherit them."""

import pickle
import socket
import subprocess
import sys
import threading
from typing import Any, Final

import pytest

from headrace.describe.pipeline import describe
from headrace.ext.sources import SOURCES
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.testing.connectors.source_reading import pipeline_of
from headrace.testing.connectors.source_world import SourceWorld

_CONNECTING: Final = ("connect", "connect_ex", "sendto", "sendmsg")

_LOADED: Final = f"""
import pickle, socket, sys

tried = []

def refused(*where, **options):
    tried.append(where)
    raise OSError("nothing is connected to where a definition is loaded")

for name in {_CONNECTING}:
    setattr(socket.socket, name, refused)
socket.getaddrinfo = refused
sys.path[:] = pickle.load(sys.stdin.buffer)
pipeline = pickle.load(sys.stdin.buffer)

from headrace.describe.pipeline import describe
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.ext.sources import SOURCES
from headrace_snapshots.store.memory import MemoryStore

describe(pipeline)
SOURCES[pipeline.source.kind].open(pipeline.source, MemoryStore())
assert not tried, tried
print(fingerprint(pipeline))
"""


class SourceDefinitionConformance:
    """A definition is parsed by Airflow, again and again, where nothing of the source may be reached."""

    def test_a_definition_pickles_and_keeps_its_fingerprint(self, world: SourceWorld) -> None:
        pipeline = pipeline_of(world)
        again = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
        assert again.source == pipeline.source
        assert fingerprint(again) == fingerprint(pipeline)

    def test_a_definition_is_built_checked_and_opened_without_a_connection(
        self, world: SourceWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python's sockets are refused; what other threads of the process do is none of its business."""
        own, tried = threading.get_ident(), list[Any]()

        def refusing(name: str, original: Any) -> Any:
            def refused(*where: Any, **options: Any) -> Any:
                if threading.get_ident() != own:
                    return original(*where, **options)
                tried.append((name, where))
                raise OSError("nothing is connected to where a definition is built")

            return refused

        with monkeypatch.context() as patched:
            for name in _CONNECTING:
                patched.setattr(socket.socket, name, refusing(name, getattr(socket.socket, name)))
            patched.setattr(socket, "getaddrinfo", refusing("getaddrinfo", socket.getaddrinfo))
            pipeline = pipeline_of(world)
            describe(pipeline)
            fingerprint(pipeline)
            SOURCES[world.source.kind].open(world.source, world.root)
        assert tried == []

    def test_its_modules_are_imported_without_a_connection(self, world: SourceWorld) -> None:
        """In a process of its own, which has imported nothing yet."""
        pipeline = pipeline_of(world)
        done = subprocess.run(
            [sys.executable, "-c", _LOADED],
            input=pickle.dumps(sys.path) + pickle.dumps(pipeline),
            capture_output=True,
            check=False,
        )
        assert done.stdout.decode().split() == [fingerprint(pipeline)], done.stderr.decode()
