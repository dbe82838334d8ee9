"""A wire between a client and a real server that breaks where a test says: what a bad network or a bad server does.

It is a process of its own, which some clients need: they hold the interpreter's lock while they wait for an answer.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

_LEAST: Final = 4096
_MOST: Final = 2**16


@dataclass
class Wire:
    """Connections to ``port`` of this machine go on to a real server."""

    port: int
    process: "subprocess.Popen[str]"

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def instead_of(self, uri: str) -> str:
        """``uri`` of the server, by way of this."""
        parts = urlsplit(uri)
        login, separator, _ = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{login}{separator}{self.address}"))

    def breaks(self, answers: int | None = None, *, stalls: bool = False, says: bytes | None = None) -> None:
        """From now on ``answers`` answers come, of all connections together (None: all); then it
        ``stalls``: nothing more comes, and connections stay open; or all are cut. What it ``says``: whatever is asked,
        it says that and hangs up, and no server is asked.
        """
        self._tell({"after": answers, "stalls": stalls, "says": None if says is None else says.decode("latin1")})

    @property
    def is_broken(self) -> bool:
        """Whether an answer has not come through since ``breaks``."""
        return bool(self._tell({}))

    def _tell(self, what: dict[str, Any]) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def open_wire(server: str, *, is_named_in_answers: bool = False) -> Iterator[Wire]:
    """A wire to the server of a URI, or of ``host:port``. ``is_named_in_answers``: the server says where it is, as
    brokers of Kafka do, and that becomes this.
    """
    parts = urlsplit(server if "://" in server else f"tcp://{server}")
    command = [sys.executable, __file__, str(parts.hostname), str(parts.port), str(int(is_named_in_answers))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Wire(int(process.stdout.readline()), process)
        finally:
            process.kill()


@dataclass
class _Exchange:
    """The other end: takes connections and passes on what is said."""

    server: tuple[str, int]
    named_as: bytes | None
    after: int | None = None
    stalls: bool = False
    says: str | None = None
    answers: int = 0
    is_broken: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    connections: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def take_orders(self, what: dict[str, Any]) -> bool:
        """Whether it is broken; if it is told something, it begins anew, without the connections that there were."""
        with self.lock:
            was_broken = self.is_broken
            if what:
                self.after, self.stalls, self.says = what["after"], what["stalls"], what["says"]
                self.answers, self.is_broken = 0, False
                for one in self.connections:
                    with suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                self.connections.clear()
        return was_broken

    def connect(self, client: socket.socket) -> None:
        if self.says is not None:
            with suppress(OSError):
                client.recv(_LEAST)
                client.sendall(self.says.encode("latin1"))
                client.shutdown(socket.SHUT_RDWR)
            client.close()
            return
        server = socket.create_connection(self.server)
        with self.lock:
            self.connections += [client, server]
        threading.Thread(target=self.pass_on, args=(client, server), daemon=True).start()
        self.pass_on(server, client, is_answer=True)

    def pass_on(self, origin: socket.socket, target: socket.socket, *, is_answer: bool = False) -> None:
        with suppress(OSError):
            while data := origin.recv(_MOST):
                if not is_answer or self.comes_through():
                    target.sendall(self.as_here(data))
                elif not self.stalls:
                    break
            for one in (origin, target):
                one.shutdown(socket.SHUT_RDWR)

    def as_here(self, data: bytes) -> bytes:
        """``data`` with this in the place of the server."""
        return data if self.named_as is None else data.replace(_host_and_port(*self.server), self.named_as)

    def comes_through(self) -> bool:
        with self.lock:
            self.is_broken = self.is_broken or (self.after is not None and self.answers >= self.after)
            self.answers += 1
            return not self.is_broken


def _host_and_port(host: str, port: int) -> bytes:
    """A host and a port as Kafka's protocol writes them."""
    return host.encode() + port.to_bytes(4, "big")


def _main(host: str, port: int, is_named_in_answers: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    own = int(listener.getsockname()[1])
    exchange = _Exchange((host, port), _host_and_port(host, own) if is_named_in_answers else None)
    print(own, flush=True)
    threading.Thread(target=exchange.serve, args=(listener,), daemon=True).start()
    for line in sys.stdin:
        print(json.dumps(exchange.take_orders(json.loads(line))), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
