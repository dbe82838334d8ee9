"""Where the keys of an S3 service come from, on a real MinIO: its own keys, and such as its token service gives.

The services of a cloud's machines (metadata, web identities) are stood in for: they hand out real keys of MinIO.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs
from uuid import uuid4

import pytest
from minio.credentials.providers import AssumeRoleProvider

from headrace.errors import FixConfigError, RetryError
from headrace.ext.stores import reached_by
from headrace_lab.sizes import set_sizes
from headrace_snapshots.store import open_store

pytestmark = pytest.mark.s3

Answers = Callable[[str, str, str], tuple[int, str]]
TOKEN = "token-of-nobody-4711"


@pytest.fixture
def bare(minio: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mapping[str, str]:
    """An environment without keys; gives those that were there."""
    kept_by_name = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    for name in kept_by_name:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return kept_by_name


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """A web server that says what ``answers`` says to a method, a path and a body; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
            status, text = answers(self.command, self.path, body)
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_POST = do_GET  # noqa: N815  # names that the library wants

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def works() -> None:
    """What is put in the bucket is there."""
    store = open_store(f"s3://tests/{uuid4().hex}")
    store.create("x", b"1")
    assert store.read("x") == b"1"


def temporary(minio: str, keys: Mapping[str, str], lasts: timedelta = timedelta(hours=1)) -> dict[str, str]:
    """Keys with a session token, as services of machines give them, which seem to last so long."""
    credentials = AssumeRoleProvider(
        sts_endpoint=minio, access_key=keys["AWS_ACCESS_KEY_ID"], secret_key=keys["AWS_SECRET_ACCESS_KEY"]
    ).retrieve()
    return {
        "AccessKeyId": credentials.access_key,
        "SecretAccessKey": credentials.secret_key,
        "Token": credentials.session_token or "",
        "Expiration": (datetime.now(UTC) + lasts).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def profiles(folder: Path, keys: Mapping[str, str], name: str = "default") -> None:
    (folder / ".aws").mkdir(exist_ok=True)
    lines = [f"[{name}]", *(f"{variable.lower()} = {value}" for variable, value in keys.items())]
    (folder / ".aws" / "credentials").write_text("\n".join(lines))


@pytest.mark.parametrize("name", ["default", "sales"])
def test_keys_of_a_profile(bare: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    profiles(tmp_path, bare, name)
    if name != "default":
        monkeypatch.setenv("AWS_PROFILE", name)
    works()
    store = open_store("s3://tests/profile")
    profiles(tmp_path, {**bare, "AWS_SECRET_ACCESS_KEY": "100%wrong"}, name)
    with pytest.raises(FixConfigError, match="SignatureDoesNotMatch"):  # what the file says now counts
        store.read("x")


def test_a_profile_gives_the_region(bare: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles(tmp_path, bare)
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-north-1\n")
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    assert "s3.eu-north-1.amazonaws.com" in repr(vars(open_store("s3://tests/x")))


def test_what_is_wrong_with_a_profile_is_said_without_its_lines(
    bare: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles(tmp_path, bare)
    monkeypatch.setenv("AWS_PROFILE", "sales")
    with pytest.raises(FixConfigError, match="profile sales has no aws_access_key_id"):
        open_store("s3://tests/x")
    (tmp_path / ".aws" / "credentials").write_text(f"[sales]\n{TOKEN}\n")
    with pytest.raises(FixConfigError, match="no file of AWS profiles") as error:
        open_store("s3://tests/x")
    assert TOKEN not in repr(error.getrepr(style="long"))


def test_keys_of_a_role_that_is_assumed(minio: str, bare: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_S3_ROLE_ARN", "arn:aws:iam::1:role/loader")
    monkeypatch.setenv("HEADRACE_S3_EXTERNAL_ID", "partner")
    with reached_by({**os.environ, **bare}):
        works()
    with reached_by({**os.environ, **bare, "AWS_SECRET_ACCESS_KEY": TOKEN}):
        wrong = open_store("s3://tests/x")
    with pytest.raises(FixConfigError, match=r"role/loader gives no keys for S3 \(HTTP 40") as error:
        wrong.read("x")
    assert TOKEN not in str(error.getrepr(style="long"))


def test_keys_of_a_container_are_renewed(minio: str, bare: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    requested_paths: list[str] = []

    def answers(method: str, path: str, body: str) -> tuple[int, str]:
        requested_paths.append(path)
        lasts = timedelta(seconds=1) if len(requested_paths) == 1 else timedelta(hours=1)
        return 200, json.dumps(temporary(minio, bare, lasts))

    with serving(answers) as address:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/keys")
        works()
        works()
    assert requested_paths == ["/keys"] * 3  # the first had expired at once


def test_keys_of_a_machine(minio: str, bare: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(method: str, path: str, body: str) -> tuple[int, str]:
        if path == "/latest/api/token":
            return 200, TOKEN
        return 200, json.dumps(temporary(minio, bare)) if path.endswith("/worker") else "worker"

    with serving(answers) as address:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{address}/")
        works()


def test_a_machine_without_a_role_says_what_to_set(bare: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(FixConfigError, match="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"):
        open_store("s3://tests/x").read("x")


def test_keys_of_a_web_identity(
    minio: str, bare: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requests: list[tuple[str, dict[str, list[str]]]] = []
    status = 200

    def answers(method: str, path: str, body: str) -> tuple[int, str]:
        requests.append((path, parse_qs(body)))
        keys = temporary(minio, bare)
        keys["SessionToken"] = keys.pop("Token")
        fields = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
        wrapper = (
            f"<AssumeRoleWithWebIdentityResult><Credentials>{fields}</Credentials></AssumeRoleWithWebIdentityResult>"
        )
        text = wrapper if status == 200 else f"<Error>{TOKEN}</Error>"
        return status, f'<Answer xmlns="https://sts.amazonaws.com/doc/2011-06-15/">{text}</Answer>'

    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
    with pytest.raises(FixConfigError, match="AWS_ROLE_ARN"):
        open_store("s3://tests/x")
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod")
    with serving(answers) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", address)
        works()
        path, form = requests[0]
        assert path == "/"  # no token in an address
        assert (form["WebIdentityToken"], form["RoleArn"]) == ([TOKEN], ["arn:aws:iam::1:role/pod"])
        for status, error in ((403, FixConfigError), (503, RetryError)):
            expectation = pytest.raises(error, match=f"role/pod gives no keys for S3.*{status}")
            with set_sizes(s3_attempts=1), expectation as error_info:
                open_store("s3://tests/x").read("x")
            assert TOKEN not in str(error_info.getrepr(style="long"))
    token.unlink()
    with pytest.raises(FixConfigError, match="FileNotFoundError"):
        open_store("s3://tests/x").read("x")


def test_what_the_environment_has_for_other_programs_does_not_count(
    minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, region and endpoint are in variables: profiles, roles, bundles and proxies stand behind them."""
    (tmp_path / "config").write_text("[profile theirs]\nregion = eu-north-9\nendpoint_url = http://127.0.0.1:1\n")
    (tmp_path / "keys").write_text("[theirs]\naws_access_key_id = somebody\naws_secret_access_key = else\n")
    nowhere_text = "http://127.0.0.1:1"
    for name, value in {
        "AWS_PROFILE": "theirs",
        "AWS_DEFAULT_PROFILE": "theirs",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"),
        "AWS_DEFAULT_REGION": "eu-north-9",
        "AWS_ENDPOINT_URL_STS": nowhere_text,
        "AWS_CA_BUNDLE": "/nowhere.pem",
        "AWS_ROLE_ARN": "arn:aws:iam::1:role/theirs",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI": nowhere_text,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": nowhere_text,
        "AWS_USE_FIPS_ENDPOINT": "true",
        "AWS_USE_DUALSTACK_ENDPOINT": "true",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        **dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), nowhere_text),
        "REQUESTS_CA_BUNDLE": "/nowhere.pem",
        "MINIO_ACCESS_KEY": "somebody",
        "MINIO_ROOT_USER": "somebody",
    }.items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://tests/{uuid4()}")
    store.write("a/ü.json", b"x")
    assert [(info.path, store.read(info.path)) for info in store.list("a/")] == [("a/ü.json", b"x")]
