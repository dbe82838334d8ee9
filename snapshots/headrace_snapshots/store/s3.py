"""A store in an S3-compatible bucket, and the keys to it: the module that knows the minio client.

``keys_of`` finds keys of the service: from variables, else from the role of a web identity, a profile, a container or a
machine. What is set decides where keys come from; nothing else is tried when that fails. No message repeats what a
source says: it may hold a token.

``S3Config`` takes endpoint and keys from the standard AWS variables; Headrace's own say how the service encrypts.

``S3Store`` repeats operations that may be repeated, with growing pauses; ``create`` only when it certainly did not
happen. Requests are counted where they leave, retries and pages included.
"""

import configparser
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar
from urllib.parse import parse_qs, urlencode, urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import ParseError

import certifi
import urllib3
from minio import Minio
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from minio.helpers import MIN_PART_SIZE, sha256_hash
from minio.signer import sign_v4_sts
from minio.sse import Sse
from minio.time import from_iso8601utc, to_amz_date, utcnow
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headrace.errors import FixConfigError
from headrace.ext import stores as store_ports
from headrace.this_process import Size

_REQUEST_ATTEMPTS: Final = 3
_SESSION: Final = "headrace"
_KEY_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_CONTAINER: Final = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_NO_KEYS: Final = (
    "S3 needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives "
    "them"
)
_TRANSIENT_STATUS: Final = re.compile(r"429|5\d\d")
_UNREADABLE_ANSWERS: Final = (ValueError, KeyError, TypeError, AttributeError, OSError, ElementTree.ParseError)
"""What minio, this module and the parsers raise when an answer is none, or a file is not there."""


class SourceOfKeys(Provider):
    """Keys from one place, fetched again shortly before they expire. May be asked by several threads.

    ``is_sure``: the place is known to be there, so that its silence is a fault that passes.
    """

    def __init__(self, place: str, fetch: Callable[[], Credentials], *, is_sure: bool = True) -> None:
        self._place, self._fetch, self._is_sure = place, fetch, is_sure
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None

    def retrieve(self) -> Credentials:
        """The keys. Raises S3KeysError, and StoreUnavailableError where asking again may help."""
        with self._lock:
            if self._credentials is None or self._credentials.is_expired():
                self._credentials, self._is_sure = self._fetch_keys(), True
            return self._credentials

    def _fetch_keys(self) -> Credentials:
        try:
            return self._fetch()
        except urllib3.exceptions.HTTPError as error:
            reason, may_pass = type(error).__name__, self._is_sure
        except _UNREADABLE_ANSWERS as error:
            status = re.search(r"status code (\d+)", str(error))
            reason = type(error).__name__ if status is None else f"HTTP {status[1]}"
            may_pass = status is not None and _TRANSIENT_STATUS.fullmatch(status[1]) is not None
        # Outside, without what was caught: that may quote a token.
        if may_pass:
            raise store_ports.StoreUnavailableError(f"{self._place} gives no keys for S3 now: {reason}")
        raise store_ports.S3KeysError(f"{self._place} gives no keys for S3 ({reason}). {_NO_KEYS}")


class ProfileKeys(Provider):
    """Keys of a profile, as its files say at each moment: other programs may renew them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def retrieve(self) -> Credentials:
        """The keys. Raises S3KeysError."""
        profile = profile_of(self._variables)
        access, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
        if not access or not secret:
            raise store_ports.S3KeysError(
                f"profile {self._variables.get('AWS_PROFILE') or 'default'} has no aws_access_key_id and "
                "aws_secret_access_key in ~/.aws/credentials (or AWS_SHARED_CREDENTIALS_FILE): add them. Headrace "
                "takes a role from HEADRACE_S3_ROLE_ARN, not from a profile"
            )
        return Credentials(access, secret, profile.get("aws_session_token"))


def keys_of(variables: Mapping[str, str]) -> Provider:
    """What gives the keys, by the standard AWS variables. Makes no request. Raises S3KeysError."""
    keys = _key_source(variables)
    role = variables.get("HEADRACE_S3_ROLE_ARN")
    if not role:
        return keys
    form = {"Action": "AssumeRole", "RoleArn": role, "RoleSessionName": _session_name(variables)}
    if external := variables.get("HEADRACE_S3_EXTERNAL_ID"):
        form["ExternalId"] = external
    return SourceOfKeys(f"the role {role}", lambda: _from_sts(variables, form, keys.retrieve()))


def profile_of(variables: Mapping[str, str]) -> Mapping[str, str]:
    """What the files of profiles say of the chosen one, nothing if there is none. Raises S3KeysError."""
    name = variables.get("AWS_PROFILE") or "default"
    home = Path(variables.get("HOME") or Path.home())
    settings: dict[str, str] = {}
    for variable, usual, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        file = Path(variables.get(variable) or home / ".aws" / usual).expanduser()
        parser = configparser.RawConfigParser()
        readable = True
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeError, OSError):  # whose messages quote lines
            readable = False
        if not readable:
            raise store_ports.S3KeysError(
                f"{file} is no file of AWS profiles that can be read: correct it, or name another"
            )
        if parser.has_section(section):
            settings |= parser.items(section)
    return settings


def _key_source(variables: Mapping[str, str]) -> Provider:
    if any(variables.get(name) for name in _KEY_VARIABLES):
        if missing := [name for name in _KEY_VARIABLES if not variables.get(name)]:
            raise store_ports.S3KeysError(f"S3 needs credentials: set {' and '.join(missing)}")
        access, secret = (variables[name] for name in _KEY_VARIABLES)
        return StaticProvider(access, secret, variables.get("AWS_SESSION_TOKEN") or None)
    profile = ProfileKeys(variables)
    # a profile that somebody chose has to have keys; the usual one need not
    if variables.get("AWS_PROFILE"):
        profile.retrieve()
        return profile
    if token_file := variables.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _web_identity(variables, Path(token_file))
    if "aws_access_key_id" in profile_of(variables):
        return profile
    http = _http_pool()
    if any(variables.get(name) for name in _CONTAINER):
        return SourceOfKeys("the container's role", IamAwsProvider(http_client=http).retrieve)
    if variables.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise store_ports.S3KeysError(_NO_KEYS)
    endpoint = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    machine = IamAwsProvider(custom_endpoint=endpoint and endpoint.rstrip("/"), http_client=http)
    return SourceOfKeys("this machine's role", machine.retrieve, is_sure=False)


def _web_identity(variables: Mapping[str, str], token_file: Path) -> Provider:
    role = variables.get("AWS_ROLE_ARN")
    if not role:
        raise store_ports.S3KeysError("AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not: set the role, too")

    def fetch_keys() -> Credentials:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": role,
            "RoleSessionName": _session_name(variables),
            "WebIdentityToken": token_file.read_text(encoding="utf-8").strip(),
        }
        return _from_sts(variables, form, None)

    return SourceOfKeys(f"the web identity in {token_file} with the role {role}", fetch_keys)


def _session_name(variables: Mapping[str, str]) -> str:
    return variables.get("AWS_ROLE_SESSION_NAME") or _SESSION


def _from_sts(variables: Mapping[str, str], form: Mapping[str, str], asker: Credentials | None) -> Credentials:
    """What the token service answers to ``form``, which is sent as a body: addresses get into logs."""
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or profile_of(variables).get("region")
    region = region or "us-east-1"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    endpoint = variables.get("AWS_ENDPOINT_URL_STS") or variables.get("AWS_ENDPOINT_URL")
    url = urlsplit(f"{(endpoint or f'https://sts.{region}.{suffix}').rstrip('/')}/")
    body = urlencode({"Version": "2011-06-15", **form})
    headers: dict[str, str | list[str] | tuple[str]] = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Host": url.netloc,
    }
    if asker is not None:
        now = utcnow()
        headers["X-Amz-Date"] = to_amz_date(now)
        if asker.session_token:
            headers["X-Amz-Security-Token"] = asker.session_token
        headers = sign_v4_sts(
            method="POST",
            url=url,
            region=region,
            headers=headers,
            credentials=asker,
            content_sha256=sha256_hash(body),
            date=now,
        )
    sent_headers = {name: str(value) for name, value in headers.items()}
    answer = _http_pool().request("POST", url.geturl(), body=body, headers=sent_headers)
    if answer.status != 200:
        raise ValueError(f"status code {answer.status}")
    fields = {part.tag.rpartition("}")[2]: part.text or "" for part in ElementTree.fromstring(answer.data).iter()}  # noqa: S314
    return Credentials(
        fields["AccessKeyId"], fields["SecretAccessKey"], fields["SessionToken"], from_iso8601utc(fields["Expiration"])
    )


def _http_pool() -> urllib3.PoolManager:
    """For services that are near: quickly tried, quickly given up."""
    retries = urllib3.Retry(
        total=_REQUEST_ATTEMPTS, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504], raise_on_status=False
    )
    return urllib3.PoolManager(retries=retries, timeout=urllib3.Timeout(connect=1, read=10), ca_certs=ca_certificates())


def ca_certificates() -> str:
    """The file of the certificates that are trusted."""
    return os.environ.get("SSL_CERT_FILE") or certifi.where()


PAGE = 1000
ATTEMPTS: Final = Size(6)
_FOUND_NOTHING = {"NoSuchKey", "NoSuchObject", "ResourceNotFound"}
_TRANSIENT_CODES = {"RequestTimeout", "IncompleteBody", "BadDigest", "XAmzContentSHA256Mismatch"}
"""What a service says, with a status of 400, of a request that did not arrive as it was sent."""

_ENCRYPTION = "HEADRACE_S3_ENCRYPTION"
_KMS_KEY = "HEADRACE_S3_KMS_KEY_ID"
_BY_SERVICE, _BY_KMS = "AES256", ("aws:kms", "aws:kms:dsse")
_NOT_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
Result = TypeVar("Result")


class Encryption(Sse):
    """How the service encrypts what it is given: with its own keys, or with one of a key service."""

    def __init__(self, algorithm: str, key_id: str | None = None) -> None:
        self._algorithm, self._key_id = algorithm, key_id

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> "Encryption | None":
        """Read HEADRACE_S3_ENCRYPTION and HEADRACE_S3_KMS_KEY_ID. Raises FixConfigError."""
        algorithm, key_id = variables.get(_ENCRYPTION, ""), variables.get(_KMS_KEY, "") or None
        if algorithm not in {"", _BY_SERVICE, *_BY_KMS}:
            raise FixConfigError(
                f"{_ENCRYPTION} is {algorithm!r}: use {', '.join((_BY_SERVICE, *_BY_KMS))}, or unset it"
            )
        if key_id is not None and algorithm not in _BY_KMS:
            raise FixConfigError(f"{_KMS_KEY} names a key that nothing uses: set {_ENCRYPTION} to aws:kms, too")
        return cls(algorithm, key_id) if algorithm else None

    def headers(self) -> dict[str, str]:
        """What goes with each put."""
        key = {} if self._key_id is None else {"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": self._key_id}
        return {"X-Amz-Server-Side-Encryption": self._algorithm, **key}

    def __str__(self) -> str:
        return self._algorithm if self._key_id is None else f"{self._algorithm} with key {self._key_id}"


@dataclass(frozen=True)
class S3Config:
    """Where the S3 service is, who asks, how it encrypts. ``endpoint`` is a URL; keys never appear in a repr."""

    endpoint: str
    region: str
    keys: Provider = field(repr=False)
    encryption: Encryption | None = None

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] | None = None) -> "S3Config":
        """Read the standard AWS variables, else the profile. Raises FixConfigError naming what is missing or wrong."""
        variables = store_ports.store_variables() if variables is None else variables
        region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or ""
        region = region or profile_of(variables).get("region", "")
        endpoint = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL") or ""
        if not endpoint and not region:
            raise FixConfigError(
                "no S3 service is named: set AWS_ENDPOINT_URL (as in http://127.0.0.1:9000), or AWS_REGION for AWS"
            )
        keys = keys_of(variables)
        endpoint = endpoint or f"https://s3.{region}.amazonaws.com"
        parts = urlsplit(endpoint)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.netloc
            or "@" in parts.netloc
            or parts.path not in {"", "/"}
        ):
            # The value is not repeated: it may hold a password.
            raise FixConfigError("AWS_ENDPOINT_URL must be http(s)://host[:port], without user, password or path")
        return cls(endpoint, region or "us-east-1", keys, Encryption.from_variables(variables))


class S3Store:
    """Objects are keys below ``prefix`` of ``bucket``, which must exist."""

    lists_in_pages: ClassVar[bool] = True

    def __init__(self, bucket: str, prefix: str, config: S3Config) -> None:
        self.uri = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self.requests = store_ports.RequestCounts()
        self._bucket = bucket
        self._base = f"{prefix}/" if prefix else ""
        self._endpoint = config.endpoint
        self._encryption = config.encryption
        parts = urlsplit(config.endpoint)
        self._client = Minio(
            parts.netloc,
            credentials=config.keys,
            secure=parts.scheme == "https",
            region=config.region,
            http_client=_CountingPool(self.requests),
        )

    def read(self, path: str) -> bytes:
        return self._repeat_request(path, self._get_object)

    def read_same(self, info: store_ports.ObjectInfo) -> bytes:
        return self._repeat_request(info.path, partial(self._get_object, etag=info.etag))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._repeat_request(path, lambda key: self._get_range(key, start, length)) if length else b""

    def stat(self, path: str) -> store_ports.ObjectInfo:
        stat = self._repeat_request(path, lambda key: self._client.stat_object(self._bucket, key))
        return store_ports.ObjectInfo(path, stat.size or 0, _plain_etag(stat.etag))

    def digested(self, path: str) -> None:
        return None

    def write(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        return store_ports.ObjectInfo(
            path, len(data), self._repeat_request(path, lambda key: self._put_object(key, data))
        )

    def create(self, path: str, data: bytes) -> store_ports.ObjectInfo:
        def create_once(key: str) -> str:
            token = _only_if_absent.set(True)
            try:
                return self._put_object(key, data)
            finally:
                _only_if_absent.reset(token)

        return store_ports.ObjectInfo(path, len(data), self._repeat_request(path, create_once, conditional=True))

    def list(self, prefix: str, start_after: str = "") -> Iterator[store_ports.ObjectInfo]:
        # Page by page through start_after, so that a page that fails is asked for again, and nothing is listed twice.
        while True:
            page = self._repeat_key(self._base + prefix, partial(self._list_page, start_after))
            yield from page
            if len(page) < PAGE:
                return
            start_after = page[-1].path

    def folders_in(self, folder: str) -> Sequence[str]:
        """The names of the folders in ``folder``, in order; a request for a thousand names, also those of objects."""
        names = self._repeat_key(self._base + folder, self._names_in)
        folders = (name.removeprefix(self._base + folder).rstrip("/") for name in names if name.endswith("/"))
        return sorted(folders, key=store_ports.sort_key)

    def delete(self, path: str) -> None:
        self._repeat_request(path, lambda key: self._client.remove_object(self._bucket, key))

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            return self._get_object(key, offset=start, length=length)
        except S3Error as error:
            if error.code == "InvalidRange":  # it ends before that
                return b""
            raise

    def _get_object(self, key: str, etag: str | None = None, *, offset: int = 0, length: int = 0) -> bytes:
        """The content of ``key``, or so many bytes of it; if it has this ``etag``, where one is given."""
        request_headers: dict[str, str | list[str] | tuple[str]] = {} if etag is None else {"If-Match": f'"{etag}"'}
        response = self._client.get_object(self._bucket, key, offset, length, request_headers=request_headers)
        try:
            if (
                etag is not None and _plain_etag(response.headers["etag"]) != etag
            ):  # of a service that asks for no match
                raise store_ports.ObjectChangedError(f"s3://{self._bucket}/{key} has not the ETag {etag} any more")
            return response.read()
        finally:
            response.close()
            response.release_conn()

    def _put_object(self, key: str, data: bytes) -> str:
        # One part whatever the size: a multipart upload is many requests.
        try:
            result = self._client.put_object(
                self._bucket,
                key,
                BytesIO(data),
                len(data),
                sse=self._encryption,
                part_size=max(len(data), MIN_PART_SIZE),
            )
        except S3Error as error:
            if self._is_about_encryption(error):
                raise self._refusal(key, error) from error
            raise
        return _plain_etag(result.etag)

    def _is_about_encryption(self, error: S3Error) -> bool:
        """Whether a put was refused for how it is to be encrypted, as far as the service says."""
        text = f"{error.code} {error.message}".lower()
        is_asked = self._encryption is not None and error.code in {"NotImplemented", "InvalidArgument"}
        return is_asked or "kms" in text or "encrypt" in text

    def _refusal(self, key: str, error: S3Error) -> store_ports.EncryptionRefusedError:
        request_text = (
            "does not ask to encrypt it" if self._encryption is None else f"asks to encrypt it ({self._encryption})"
        )
        return store_ports.EncryptionRefusedError(
            f"s3://{self._bucket}/{key} at {self._endpoint} may not be put so ({error.code}: {error.message}): the "
            f"request {request_text}. Set HEADRACE_S3_ENCRYPTION (AES256 or aws:kms) and HEADRACE_S3_KMS_KEY_ID as the "
            "bucket and its service want them"
        )

    def _list_page(self, start_after: str, key_prefix: str) -> tuple[store_ports.ObjectInfo, ...]:
        start_key = self._base + start_after if start_after else None
        objects = self._client.list_objects(self._bucket, prefix=key_prefix, recursive=True, start_after=start_key)
        return tuple(
            store_ports.ObjectInfo(
                (o.object_name or "").removeprefix(self._base),
                o.size or 0,
                _plain_etag(o.etag),
                modified=None if o.last_modified is None else int(o.last_modified.timestamp() * 1_000_000),
            )
            for o in islice(objects, PAGE)
        )

    def _names_in(self, folder: str) -> Sequence[str]:
        return [o.object_name or "" for o in self._client.list_objects(self._bucket, prefix=folder)]

    def _repeat_request(self, path: str, operation: Callable[[str], Result], *, conditional: bool = False) -> Result:
        return self._repeat_key(self._base + store_ports.check_path(path), operation, conditional=conditional)

    def _repeat_key(self, key: str, operation: Callable[[str], Result], *, conditional: bool = False) -> Result:
        """Run ``operation(key)``, again while StoreUnavailableError says that it did not happen or may be repeated."""
        retrying = Retrying(
            retry=retry_if_exception_type(store_ports.StoreUnavailableError),
            wait=wait_random_exponential(multiplier=0.1, max=5),
            stop=stop_after_attempt(ATTEMPTS.value),
            reraise=True,
        )
        result: Result = retrying(self._request_once, key, operation, conditional)
        return result

    def _request_once(self, key: str, operation: Callable[[str], Result], conditional: bool) -> Result:
        where = f"s3://{self._bucket}/{key} at {self._endpoint}"
        try:
            return operation(key)
        except S3Error as error:
            raise self._translate(error, where, conditional) from error
        except _NOT_SENT as error:
            raise store_ports.StoreUnavailableError(f"cannot connect for {where}: {type(error).__name__}") from error
        except _StrangeAnswerError as error:
            raise _no_answer(where, str(error), conditional) from error
        except (urllib3.exceptions.HTTPError, ServerError, InvalidResponseError) as error:
            raise _no_answer(where, type(error).__name__, conditional) from error
        except (ParseError, ValueError) as error:  # minio parses what comes, and names what it misses
            raise _no_answer(where, f"an XML document that cannot be read: {error}", conditional) from error
        except MinioException as error:
            raise FixConfigError(f"{where} cannot be used: {error}") from error

    def _translate(self, error: S3Error, where: str, conditional: bool) -> Exception:
        status = error.response.status
        if error.code == "NoSuchBucket":
            return FixConfigError(
                f"bucket {self._bucket} does not exist at {self._endpoint}: make it, or correct the root"
            )
        if error.code in _FOUND_NOTHING:
            return store_ports.ObjectNotFoundError(f"there is no object {where}")
        if status == 412:
            was_read = store_ports.ObjectChangedError(f"{where} has not the ETag any more that it had")
            return store_ports.ObjectExistsError(f"{where} exists already") if conditional else was_read
        # 409 is also said of a conditional put that met another one, and has stored nothing
        if status in {409, 429}:
            return store_ports.StoreUnavailableError(f"{where} is busy: {error.code}")
        if status >= 500 or status == 408 or error.code in _TRANSIENT_CODES:
            return _no_answer(where, error.code or str(status), conditional)
        demand = "; a policy of the bucket may demand HEADRACE_S3_ENCRYPTION" if error.code == "AccessDenied" else ""
        return FixConfigError(
            f"{where} refused the request ({error.code}: {error.message}); check AWS_ACCESS_KEY_ID, "
            f"AWS_SECRET_ACCESS_KEY, AWS_REGION and the rights on the bucket{demand}"
        )


_only_if_absent: ContextVar[bool] = ContextVar("only_if_absent", default=False)


class _StrangeAnswerError(urllib3.exceptions.HTTPError):
    """An answer that no S3 service gives."""


class _CountingPool(urllib3.PoolManager):
    """The connections that minio uses. They count requests, add the one header that minio's put cannot send, and refuse
    answers that are not S3's, whatever their status.
    """

    def __init__(self, counts: store_ports.RequestCounts) -> None:
        super().__init__(
            maxsize=64,
            # ``_repeat_key`` repeats requests, which knows whether one that got no answer may have been done
            retries=False,
            timeout=urllib3.Timeout(connect=5, read=60),
            ca_certs=ca_certificates(),
        )
        self._counts = counts

    def urlopen(  # type: ignore[override]
        self, method: str, url: str, redirect: bool = True, **kw: Any
    ) -> urllib3.BaseHTTPResponse:
        conditional = method == "PUT" and _only_if_absent.get()
        if conditional:
            kw["headers"]["If-None-Match"] = "*"
        kind = _request_kind(method, url)
        self._counts.add("create" if conditional else kind)
        response = super().urlopen(method, url, redirect, **kw)
        if _is_strange(kind, response):
            response.close()
            raise _StrangeAnswerError(
                f"HTTP {response.status}, {response.headers.get('content-type', 'of no type')}, which is not what an "
                "S3 service says; if that persists, look at what is between here and AWS_ENDPOINT_URL"
            )
        return response


def _is_strange(kind: str, response: urllib3.BaseHTTPResponse) -> bool:
    """Whether it is a page for people, as proxies and consoles send it, or lacks what each answer of that kind has."""
    headers = response.headers
    if response.status < 300 and kind in {"get", "put", "stat"}:
        has_end = kind != "get" or "content-length" in headers or "transfer-encoding" in headers
        return "etag" not in headers or not has_end
    return headers.get("content-type", "").startswith("text/html")


def open_bucket(uri: str) -> S3Store:
    """The store of a root in a bucket. Raises FixConfigError."""
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket):
        raise FixConfigError(
            f"{store_ports.shown(uri)!r} has no valid bucket name: use s3://bucket/prefix, without keys"
        )
    return S3Store(bucket, prefix.strip("/"), S3Config.from_environment())


def _request_kind(method: str, url: str) -> str:
    if method == "GET":
        return "list" if "list-type" in parse_qs(urlsplit(url).query) else "get"
    return {"HEAD": "stat", "DELETE": "delete"}.get(method, "put")


def _no_answer(where: str, reason: str, conditional: bool) -> Exception:
    if conditional:
        return store_ports.UnknownOutcomeError(f"whether {where} was created is unknown ({reason}); read it back")
    return store_ports.StoreUnavailableError(f"no usable answer for {where}: {reason}")


def _plain_etag(value: str | None) -> str:
    return (value or "").strip('"')
