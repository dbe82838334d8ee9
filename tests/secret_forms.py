"""A secret in any of the forms in which it may travel."""

import base64
import json
from urllib.parse import quote


def forms_of(secret: str) -> set[str]:
    """``secret`` as it is, in a URI, in JSON, in base 64 and in hexadecimal digits."""
    data = secret.encode()
    return {
        secret,
        quote(secret),
        quote(secret, safe=""),
        json.dumps(secret)[1:-1],
        base64.b64encode(data).decode(),
        data.hex(),
        data.hex().upper(),
    }
