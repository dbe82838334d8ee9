"""A MinIO server of our own on loopback: finding or building the binary, starting it, stopping it by pid.

Not named ``minio.py``: a script beside it that imports the ``minio`` client would get this file instead.
For tests, the demo and development; production brings its own S3. Command line:
``python scripts/minio_server.py path | start [--data DIR] | env | stop``.
"""

import argparse
import base64
import json
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import tenacity
import urllib3
from minio import Minio, MinioAdmin
from minio.credentials.providers import StaticProvider
from minio.error import MinioException

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError, RetryError

RELEASE = "RELEASE.2025-09-07T16-13-09Z"
MODULE = "github.com/minio/minio@v0.0.0-20250907161309-07c3a429bfed"  # the same release; its go.mod replaces nothing
STATE = Path(".headrace/minio")
KMS_KEY = "headrace-tests"
START_ATTEMPTS = 3  # another process may take the free port between our look and MinIO's bind
START_SECONDS = 30.0
PROBE = "headrace-is-it-up"
STOP_SECONDS = 10.0

_children: dict[int, "subprocess.Popen[bytes]"] = {}  # a Popen that nobody holds warns while its process runs


class MinioUnavailableError(FixConfigError):
    """There is no MinIO binary and none can be built here."""

    code = "config.minio_unavailable"


class MinioStartError(RetryError):
    """The server was started but could not be used."""

    code = "retry.minio_start"


@dataclass(frozen=True)
class Server:
    """A running server. ``started`` is the process's start time: with the pid it names one process for good."""

    endpoint: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    pid: int
    started: float

    def environment(self) -> dict[str, str]:
        """The standard AWS variables that point a client at this server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
        }


def find() -> Path | None:
    """``minio`` on PATH, else the one built before, else None."""
    on_path = shutil.which("minio")
    if on_path:
        return Path(on_path)
    return next((file for file in _binary_paths() if file.is_file()), None)


def find_or_build() -> Path:
    """The server's binary; built from its published source (about five minutes) when there is none yet.

    Raises MinioUnavailableError when there is none and it cannot be built.
    """
    return find() or _build()


def _binary_paths() -> tuple[Path, ...]:
    """Where a server may be that was built, and last where one is put. CI has a slower one, since it is built sooner.
    Benchmarks on the same machine do not take that.
    """
    folder = cache_folder() / "minio" / RELEASE
    return (folder / "minio", folder / "of-ci" / "minio") if _is_in_ci() else (folder / "minio",)


def _is_in_ci() -> bool:
    return os.environ.get("CI") == "true"


def _build() -> Path:
    go = shutil.which("go")
    if go is None:
        raise MinioUnavailableError(
            f"no `minio` and no `go` on PATH: install MinIO ({RELEASE} is what we test with), "
            "or Go 1.24 or newer (https://go.dev/dl) to build it"
        )
    target = _binary_paths()[-1]
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"building MinIO {RELEASE} with {go} (about five minutes, once)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # -mod=vendor and friends in a person's GOFLAGS make `go install module@version` fail. The compiler takes a
        # fifth less of CPU if it collects its garbage less often, and another tenth without what debuggers want. In CI
        # nothing is inlined: a fifth less again.
        environment = {**os.environ, "GOBIN": folder, "GOFLAGS": "", "CGO_ENABLED": "0", "GOGC": "400"}
        compiler_flags = "-dwarf=false -l" if _is_in_ci() else "-dwarf=false"
        process = subprocess.run(
            [go, "install", f"-gcflags=all={compiler_flags}", "-ldflags=-s -w", MODULE],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if process.returncode != 0:
            raise MinioUnavailableError(
                f"`go install {MODULE}` failed with exit code {process.returncode} (its output is above): "
                "check the network and the Go version, or put a `minio` binary on PATH"
            )
        (Path(folder) / "minio").replace(target)  # complete or invisible, even when two builds run at once
    return target


def start(data: Path, *, encrypts: bool = False) -> Server:
    """A server on a free loopback port with random credentials, ready to be used.

    Its buckets are in ``data``, its log is beside that. It lives in a session of its own: Ctrl-C does not reach it,
    ``stop`` does. ``encrypts``: it has a key, called ``KMS_KEY``, with which it can encrypt. Raises MinioStartError.
    """
    binary = find_or_build()
    data.mkdir(parents=True, exist_ok=True)
    log = data.with_name(f"{data.name}.log")
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            return _start_once(binary, data, log, encrypts=encrypts)
        except MinioStartError:
            if attempt == START_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def start_again(server: Server, data: Path) -> Server:
    """``server``, which has ended, as it was: with its address, its keys and its ``data``. Raises MinioStartError."""
    address = server.endpoint.removeprefix("http://")
    keys = server.access_key, server.secret_key
    return _start_once(find_or_build(), data, data.with_name(f"{data.name}.log"), address, keys)


def _start_once(
    binary: Path,
    data: Path,
    log: Path,
    address: str | None = None,
    keys: tuple[str, str] | None = None,
    *,
    encrypts: bool = False,
) -> Server:
    address = address or f"127.0.0.1:{_free_port()}"
    access_key, secret_key = keys or (secrets.token_hex(8), secrets.token_hex(20))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MINIO_")},
        "MINIO_ROOT_USER": access_key,
        "MINIO_ROOT_PASSWORD": secret_key,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    if encrypts:
        environment["MINIO_KMS_SECRET_KEY"] = f"{KMS_KEY}:{base64.b64encode(secrets.token_bytes(32)).decode()}"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [binary, "server", "--quiet", "--address", address, data],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        start_time = psutil.Process(process.pid).create_time()
        server = Server(f"http://{address}", access_key, secret_key, process.pid, start_time)
        _wait_until_usable(process, server, log)
    except BaseException:
        process.kill()
        process.wait()
        raise
    _children[process.pid] = process
    return server


def client(server: Server) -> Minio:
    """A client of ``server`` that gives up at the first failure."""
    return Minio(
        server.endpoint.removeprefix("http://"),
        access_key=server.access_key,
        secret_key=server.secret_key,
        secure=False,
        region="us-east-1",
        http_client=urllib3.PoolManager(retries=False, timeout=5),
    )


def add_user(server: Server, name: str, policy: Mapping[str, Any]) -> dict[str, str]:
    """The variables with the keys of a new user of ``server``, who may do what ``policy`` allows."""
    password = secrets.token_hex(16)
    keys = StaticProvider(server.access_key, server.secret_key)
    admin = MinioAdmin(endpoint=server.endpoint.removeprefix("http://"), credentials=keys, secure=False)
    admin.user_add(name, password)
    admin.policy_add(name, policy=dict(policy))
    admin.policy_set(name, user=name)
    return {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": password}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_usable(process: "subprocess.Popen[bytes]", server: Server, log: Path) -> None:
    """Until a bucket can be made and removed: the server calls itself healthy some moments before."""
    asking = client(server)
    try:
        for attempt in tenacity.Retrying(
            stop=tenacity.stop_after_delay(START_SECONDS),
            wait=tenacity.wait_fixed(0.05),
            retry=tenacity.retry_if_exception_type((MinioException, urllib3.exceptions.HTTPError)),
            reraise=True,
        ):
            with attempt:
                if process.poll() is not None:
                    raise MinioStartError(f"MinIO ended at once with exit code {process.returncode}; its log is {log}")
                if not asking.bucket_exists(PROBE):
                    asking.make_bucket(PROBE)
                asking.remove_bucket(PROBE)
    except (MinioException, urllib3.exceptions.HTTPError) as error:
        raise MinioStartError(
            f"MinIO made no bucket within {START_SECONDS:.0f} s ({error}); its log is {log}"
        ) from error


def stop(server: Server) -> None:
    """Ends exactly that process, politely first. Nothing happens when it is gone already."""
    try:
        process = psutil.Process(server.pid)
        if process.create_time() != server.started:
            return  # the pid belongs to someone else by now
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS)
    except psutil.NoSuchProcess:
        return
    finally:
        child = _children.pop(server.pid, None)
        if child is not None:
            child.wait()


def running(state: Path = STATE) -> Server | None:
    """The server that the ``start`` command left running, or None."""
    try:
        server = Server(**json.loads((state / "server.json").read_text()))
    except FileNotFoundError:
        return None
    try:
        alive = psutil.Process(server.pid).create_time() == server.started
    except psutil.NoSuchProcess:
        alive = False
    return server if alive else None


def _command_start(data: Path) -> None:
    server = running()
    if server is None:
        STATE.mkdir(parents=True, exist_ok=True)
        server = start(data)
        file = STATE / "server.json"
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            json.dump(asdict(server), stream)
    print(f"MinIO runs at {server.endpoint} (pid {server.pid}).")
    print('Point a shell at it:  eval "$(.venv/bin/python scripts/minio_server.py env)"')


def _command_env() -> None:
    server = running()
    if server is None:
        raise FixConfigError("no MinIO runs from this folder: start it with `make minio`")
    for name, value in server.environment().items():
        print(f"export {name}={shlex.quote(value)}")


def _command_stop() -> None:
    server = running()
    if server is not None:
        stop(server)
    (STATE / "server.json").unlink(missing_ok=True)
    print("MinIO is stopped." if server else "No MinIO runs from this folder.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("path", help="print the binary's path, building it when there is none")
    start_parser = commands.add_parser("start", help="start a server for this folder, or say where it runs")
    start_parser.add_argument("--data", type=Path, default=STATE / "data")
    commands.add_parser("env", help="print the AWS variables as shell exports (they hold the server's secret)")
    commands.add_parser("stop", help="stop the server that start started")
    arguments = parser.parse_args()
    match arguments.command:
        case "path":
            print(find_or_build())
        case "start":
            _command_start(arguments.data)
        case "env":
            _command_env()
        case "stop":
            _command_stop()


if __name__ == "__main__":
    try:
        main()
    except (FixConfigError, RetryError) as error:
        sys.exit(f"{error.code}: {error}")
