"""What a connection keeps to itself."""

import json
import traceback
from collections.abc import Callable
from urllib.parse import quote

import pytest

import headrace as hr
from headrace.connections import MissingConnectionError, connection
from headrace.ext.sinks import SinkUnreachableError
from headrace.sinks.failures import named_failures


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("postgresql://ann:a%2Fb%40c@db/x", "no login for a/b@c"),
        ("postgresql://ann:a%2Fb%40c@db/x", "no answer from postgresql://ann:a%2Fb%40c@db/x"),
        ("postgresql://ann:a%2Fb%40c@db/x", "no answer from postgresql://ann:a/b%40c@db/x"),
        ("https://lake/x?header.Authorization=Bearer%20a/b@c", "401 for Bearer a/b@c"),
        ("https://lake/x?adls.connection-string=AccountKey%3Da/b@c", "no account AccountKey=a/b@c"),
    ],
)
def test_no_secret_is_in_what_clients_say(uri: str, message: str) -> None:
    text = connection("lake", {"HEADRACE_CONN_LAKE": uri}).without_secrets(message)
    assert "***" in text
    assert "b@c" not in text.replace("%40", "@")


@pytest.mark.parametrize("quote_text", [str, repr, json.dumps, lambda text: json.dumps(text, ensure_ascii=False)])
@pytest.mark.parametrize("secret", ['odd"quote\\x', "it's", "both\"'", "caf\u00e9", "two\nlines"])
def test_no_secret_is_in_what_programs_quote(secret: str, quote_text: Callable[[str], str]) -> None:
    lake_connection = connection("lake", {"HEADRACE_CONN_LAKE": f"https://ann:{quote(secret)}@lake/x"})
    assert (
        lake_connection.without_secrets(f"no login for {quote_text(secret)}, ann").replace('"', "").replace("'", "")
        == "no login for ***, ann"
    )


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://ann:/planted@db:5432/reports",
        "postgresql://ann:47/planted@db:5432/reports",
        "postgresql://ann:47?planted@db:5432/reports",
        "postgresql://ann:47#planted@db:5432/reports",
        "postgresql://ann:pw@y/planted@db:5432/reports",
        "s3://AKIA:/planted+abc@bucket/prefix",
    ],
)
def test_a_uri_that_its_password_cuts_is_refused(uri: str) -> None:
    with pytest.raises(MissingConnectionError, match="%2F for /") as error:
        connection("lake", {"HEADRACE_CONN_LAKE": uri})
    assert "planted" not in str(error.value)
    whole = uri.replace("/planted", "%2Fplanted").replace("?planted", "%3Fplanted").replace("#planted", "%23planted")
    assert "planted" not in str(connection("lake", {"HEADRACE_CONN_LAKE": whole.replace("@y", "%40y")}))


def test_no_secret_is_in_an_error_that_says_what_to_do_of_it() -> None:
    address = connection("mail", {"HEADRACE_CONN_MAIL": "smtp://u:planted@mail:25/x"})
    sink = hr.final_rows("module:function", connection="mail")
    with (
        pytest.raises(SinkUnreachableError, match=r"535 bad login u:\*\*\*") as error_info,
        named_failures(sink, address),
    ):
        try:
            raise ConnectionError("535 planted")
        except ConnectionError as error:
            raise SinkUnreachableError(f"the server says: 535 bad login u:{address.password}") from error
    assert "planted" not in "".join(traceback.format_exception(error_info.value))
