"""What a store of files says for good: clients of Delta and Iceberg tell it in texts alone."""

import re
from typing import Final

_FOR_GOOD: Final = re.compile(
    r"\b401 Unauthorized|\b403 Forbidden|Forbidden\b|Unauthorized\b|Access ?Denied|ACCESS_DENIED|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|AuthorizationHeaderMalformed|PermanentRedirect|NoSuchBucket|NO_SUCH_BUCKET"
    r"|InvalidBucketName|MethodNotAllowed|Invalid Zone suffix|Permission denied|Read-only file system"
    r"|\(os error (1|13|20|21|30|36)\)|\[errno (1|13|20|21|30|36)\]|HTTP status (301|401|403|405)\b"
)
"""Rights, keys and signatures; buckets that there are not, or in another region; in a folder: not permitted, no access,
no folder or one where a file is due, read-only, a name that is too long. A full disk may have room soon.
"""


def refuses_for_good(text: str) -> bool:
    """Whether the store would say the same again."""
    return _FOR_GOOD.search(text) is not None
