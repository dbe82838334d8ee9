"""A proxy before a real server: it spoils answers on demand, and remembers what was asked."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3

SLOW = 0.3
"""Seconds that a slow request takes longer."""


@dataclass(frozen=True)
class Answer:
    """What a server says instead of an answer from S3."""

    status: int
    body: bytes
    type: str = "application/xml"


@dataclass(frozen=True)
class Request:
    """What a client asks."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Proxy(ThreadingHTTPServer):
    """Forwards to ``upstream``. ``spoil``: what the next requests meet: a status or a whole answer, ``drop`` (the
    connection ends before the request was applied), ``lose`` (after it), ``cut`` (the answer ends in its middle, and
    nothing says how long it should be), ``truncate`` (something says so), ``etag`` (another one), ``slow`` or ``pass``.

    ``judge``: what somebody who looks at a request says instead of the server, None to let it pass. ``requests_seen``:
    every request so far: its method, its path with the query, and the program that says it made it.
    """

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), Forward)
        self.upstream = upstream
        self.pool = urllib3.PoolManager(retries=False, maxsize=16)
        self.spoil: list[int | str | Answer] = []
        self.requests_seen: list[tuple[str, str, str]] = []
        self.before_each: Callable[[], None] = lambda: None
        self.judge: Callable[[Request], Answer | None] = lambda _: None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Forward(BaseHTTPRequestHandler):
    """One request: forwarded as it is, so that its signature stays right."""

    server: Proxy

    def forward(self) -> None:
        self.close_connection = True
        self.server.before_each()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests_seen.append((self.command, self.path, self.headers.get("User-Agent", "")))
        request = Request(self.command, self.path, dict(self.headers.items()), body)
        spoil = self.server.judge(request) or (self.server.spoil.pop(0) if self.server.spoil else None)
        if isinstance(spoil, int):
            # S3 explains its refusals in XML; what stands in front of it breaks down without a word.
            spoil = Answer(spoil, b"<Error><Code>ConditionalRequestConflict</Code></Error>" if spoil < 500 else b"")
        if isinstance(spoil, Answer):
            self.send_response(spoil.status)
            self.send_header("Content-Type", spoil.type)
            self.send_header("Content-Length", str(len(spoil.body)))
            self.end_headers()
            self.wfile.write(spoil.body if self.command != "HEAD" else b"")
            return
        if spoil == "drop":
            return
        if spoil == "slow":
            time.sleep(SLOW)
        answer = self.server.pool.urlopen(
            request.method,
            self.server.upstream + request.path,
            body=request.body,
            headers=request.headers,
            decode_content=False,
        )
        if spoil == "lose":
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if spoil != "cut" or name.lower() != "content-length":
                is_other = spoil == "etag" and name.lower() == "etag"
                self.send_header(name, '"another"' if is_other else value)
        self.end_headers()
        self.wfile.write(answer.data[: len(answer.data) // 2] if spoil in {"cut", "truncate"} else answer.data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward  # noqa: N815 - the names that http.server looks for

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def proxying(upstream: str) -> Iterator[Proxy]:
    """A proxy before ``upstream`` that runs."""
    with Proxy(upstream) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.pool.clear()
