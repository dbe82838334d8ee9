"""What a connection keeps to itself."""

import pytest

from headrace.connections import connection


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("postgresql://ann:a%2Fb%40c@db/x", "no login for a/b@c"),
        ("postgresql://ann:a%2Fb%40c@db/x", "no answer from postgresql://ann:a%2Fb%40c@db/x"),
        ("postgresql://ann:a%2Fb%40c@db/x", "no answer from postgresql://ann:a/b%40c@db/x"),
        ("https://lake/x?header.Authorization=Bearer%20a/b@c", "401 for Bearer a/b@c"),
        ("https://lake/x?adls.connection-string=AccountKey%3Da/b@c", "no account AccountKey=a/b@c"),
    ],
)
def test_no_secret_is_in_what_clients_say(uri: str, said: str) -> None:
    told = connection("lake", {"HEADRACE_CONN_LAKE": uri}).without_secrets(said)
    assert "***" in told
    assert "b@c" not in told.replace("%40", "@")
