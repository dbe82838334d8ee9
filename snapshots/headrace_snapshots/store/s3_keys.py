"""Keys of an S3 service: from variables, else from the role of a web identity, a profile, a container or a machine.

What is set decides where keys come from; nothing else is tried when that fails. No message repeats what a source says:
it may hold a token.
"""

import configparser
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import certifi
import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import IamAwsProvider, Provider, StaticProvider
from minio.helpers import sha256_hash
from minio.signer import sign_v4_sts
from minio.time import from_iso8601utc, to_amz_date, utcnow

from headrace.ext.stores import S3KeysError, StoreUnavailableError

_ATTEMPTS: Final = 3
_SESSION: Final = "headrace"
_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_CONTAINER: Final = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_NO_KEYS: Final = (
    "S3 needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives "
    "them"
)
_TRANSIENT: Final = re.compile(r"429|5\d\d")
_NO_ANSWER: Final = (ValueError, KeyError, TypeError, AttributeError, OSError, ElementTree.ParseError)
"""What minio, this module and the parsers raise when an answer is none, or a file is not there."""


class SourceOfKeys(Provider):
    """Keys from one place, fetched again shortly before they expire. May be asked by several threads.

    ``is_sure``: the place is known to be there, so that its silence is a fault that passes.
    """

    def __init__(self, place: str, fetch: Callable[[], Credentials], *, is_sure: bool = True) -> None:
        self._place, self._fetch, self._is_sure = place, fetch, is_sure
        self._lock = threading.Lock()
        self._kept: Credentials | None = None

    def retrieve(self) -> Credentials:
        """The keys. Raises S3KeysError, and StoreUnavailableError where asking again may help."""
        with self._lock:
            if self._kept is None or self._kept.is_expired():
                self._kept, self._is_sure = self._fetched(), True
            return self._kept

    def _fetched(self) -> Credentials:
        try:
            return self._fetch()
        except urllib3.exceptions.HTTPError as error:
            reason, may_pass = type(error).__name__, self._is_sure
        except _NO_ANSWER as error:
            status = re.search(r"status code (\d+)", str(error))
            reason = type(error).__name__ if status is None else f"HTTP {status[1]}"
            may_pass = status is not None and _TRANSIENT.fullmatch(status[1]) is not None
        # Outside, without what was caught: that may quote a token.
        if may_pass:
            raise StoreUnavailableError(f"{self._place} gives no keys for S3 now: {reason}")
        raise S3KeysError(f"{self._place} gives no keys for S3 ({reason}). {_NO_KEYS}")


class ProfileKeys(Provider):
    """Keys of a profile, as its files say at each moment: other programs may renew them."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def retrieve(self) -> Credentials:
        """The keys. Raises S3KeysError."""
        profile = profile_of(self._variables)
        access, secret = profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")
        if not access or not secret:
            raise S3KeysError(
                f"profile {self._variables.get('AWS_PROFILE') or 'default'} has no aws_access_key_id and "
                "aws_secret_access_key in ~/.aws/credentials (or AWS_SHARED_CREDENTIALS_FILE): add them. Headrace "
                "takes a role from HEADRACE_S3_ROLE_ARN, not from a profile"
            )
        return Credentials(access, secret, profile.get("aws_session_token"))


def keys_of(variables: Mapping[str, str]) -> Provider:
    """What gives the keys, by the standard AWS variables. Makes no request. Raises S3KeysError."""
    keys = _source(variables)
    role = variables.get("HEADRACE_S3_ROLE_ARN")
    if not role:
        return keys
    form = {"Action": "AssumeRole", "RoleArn": role, "RoleSessionName": _session(variables)}
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
            raise S3KeysError(f"{file} is no file of AWS profiles that can be read: correct it, or name another")
        if parser.has_section(section):
            settings |= parser.items(section)
    return settings


def _source(variables: Mapping[str, str]) -> Provider:
    if any(variables.get(name) for name in _KEYS):
        if missing := [name for name in _KEYS if not variables.get(name)]:
            raise S3KeysError(f"S3 needs credentials: set {' and '.join(missing)}")
        access, secret = (variables[name] for name in _KEYS)
        return StaticProvider(access, secret, variables.get("AWS_SESSION_TOKEN") or None)
    profile = ProfileKeys(variables)
    if variables.get("AWS_PROFILE"):
        profile.retrieve()
        return profile
    if token_file := variables.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return _web_identity(variables, Path(token_file))
    if "aws_access_key_id" in profile_of(variables):
        return profile
    http = _http()
    if any(variables.get(name) for name in _CONTAINER):
        return SourceOfKeys("the container's role", IamAwsProvider(http_client=http).retrieve)
    if variables.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise S3KeysError(_NO_KEYS)
    endpoint = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    machine = IamAwsProvider(custom_endpoint=endpoint and endpoint.rstrip("/"), http_client=http)
    return SourceOfKeys("this machine's role", machine.retrieve, is_sure=False)


def _web_identity(variables: Mapping[str, str], token_file: Path) -> Provider:
    role = variables.get("AWS_ROLE_ARN")
    if not role:
        raise S3KeysError("AWS_WEB_IDENTITY_TOKEN_FILE is set and AWS_ROLE_ARN is not: set the role, too")

    def fetch() -> Credentials:
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": role,
            "RoleSessionName": _session(variables),
            "WebIdentityToken": token_file.read_text(encoding="utf-8").strip(),
        }
        return _from_sts(variables, form, None)

    return SourceOfKeys(f"the web identity in {token_file} with the role {role}", fetch)


def _session(variables: Mapping[str, str]) -> str:
    return variables.get("AWS_ROLE_SESSION_NAME") or _SESSION


def _from_sts(variables: Mapping[str, str], form: Mapping[str, str], asker: Credentials | None) -> Credentials:
    """What the token service answers to ``form``, which is sent as a body: addresses get into logs."""
    region = variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION") or profile_of(variables).get("region")
    region = region or "us-east-1"
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    stated = variables.get("AWS_ENDPOINT_URL_STS") or variables.get("AWS_ENDPOINT_URL")
    url = urlsplit(f"{(stated or f'https://sts.{region}.{suffix}').rstrip('/')}/")
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
    sent = {name: str(value) for name, value in headers.items()}
    answer = _http().request("POST", url.geturl(), body=body, headers=sent)
    if answer.status != 200:
        raise ValueError(f"status code {answer.status}")
    fields = {part.tag.rpartition("}")[2]: part.text or "" for part in ElementTree.fromstring(answer.data).iter()}  # noqa: S314
    return Credentials(
        fields["AccessKeyId"], fields["SecretAccessKey"], fields["SessionToken"], from_iso8601utc(fields["Expiration"])
    )


def _http() -> urllib3.PoolManager:
    """For services that are near: quickly tried, quickly given up."""
    retries = urllib3.Retry(
        total=_ATTEMPTS, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504], raise_on_status=False
    )
    return urllib3.PoolManager(retries=retries, timeout=urllib3.Timeout(connect=1, read=10), ca_certs=ca_certificates())


def ca_certificates() -> str:
    """The file of the certificates that are trusted."""
    return os.environ.get("SSL_CERT_FILE") or certifi.where()
