"""What an S3 service refuses, beside what any store may."""

from headrace.errors import FixConfigError


class EncryptionRefusedError(FixConfigError):
    """The S3 service cannot or may not encrypt as it is asked to, or demands that it is asked."""

    code = "config.encryption"


class S3KeysError(FixConfigError):
    """There are no keys for S3, or what should give them refuses."""

    code = "config.s3_keys"
