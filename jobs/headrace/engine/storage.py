"""Where Spark finds what the storage port calls a path: one URI per object, exactly that object."""

import re
from urllib.parse import unquote

from headrace.errors import FixConfigError

_GLOB = re.compile(r"([\\\[\]{}*?])")


def hadoop_uri(store_uri: str, path: str) -> str:
    """Hadoop's name of the object ``path`` of the store at ``store_uri``: ``file:///...`` or ``s3a://...``.

    Nothing is percent-encoded: Hadoop takes ``%41`` and a space as they are. Raises FixConfigError for ``memory://``.
    """
    scheme, _, rest = store_uri.partition("://")
    if scheme == "file":
        base = "file://" + unquote(rest)
    elif scheme in ("s3", "s3a"):
        base = "s3a://" + rest
    else:
        raise FixConfigError(f"Spark cannot read {store_uri}: use a root that starts with file:// or s3://")
    return f"{base.rstrip('/')}/{path}"


def spark_uri(store_uri: str, path: str) -> str:
    """``hadoop_uri`` with every character escaped that ``spark.read`` would take as a pattern."""
    return _GLOB.sub(r"\\\1", hadoop_uri(store_uri, path))
