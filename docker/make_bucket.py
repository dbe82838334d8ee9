#!/opt/headrace/.venv/bin/python
"""Makes the bucket that BUCKET names, and two users: BUCKET_USER may do there what runs do, BUCKET_READER only reads.

The service `bucket` of compose.yaml runs it at each start, with the keys of MinIO's root, which no other service has.
A bucket that is there stays as it is; passwords (BUCKET_USER_PASSWORD, BUCKET_READER_PASSWORD) and rights become what
they are here.
"""

import os
import sys
from typing import Any
from urllib.parse import urlsplit

from minio import Minio, MinioAdmin

from headrace_snapshots.names import ObjectKind
from headrace_snapshots.store.s3 import S3Config

ROOT = "root"
"""The prefix of the deployment's root in its bucket."""

LANDING = "landing"
"""Where files land, by custom. Nobody of Headrace deletes there."""

_KEPT = {ObjectKind.HINT, ObjectKind.DELIVERIES}
"""Kinds of objects that no expiry deletes."""


def reading(bucket: str) -> list[dict[str, Any]]:
    """Read and list the root."""
    arn = f"arn:aws:s3:::{bucket}"
    return [
        {"Sid": "Read", "Effect": "Allow", "Action": "s3:GetObject", "Resource": f"{arn}/{ROOT}/*"},
        {
            "Sid": "List",
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": arn,
            "Condition": {"StringLike": {"s3:prefix": [ROOT, f"{ROOT}/*"]}},
        },
    ]


def running(bucket: str) -> list[dict[str, Any]]:
    """Read, list and write the root; delete what expiry deletes, and nothing that has landed."""
    root = f"arn:aws:s3:::{bucket}/{ROOT}"
    expiring = [f"{root}/*/{kind.value}/*" for kind in ObjectKind if kind not in _KEPT]
    return [
        *reading(bucket),
        {"Sid": "Write", "Effect": "Allow", "Action": "s3:PutObject", "Resource": f"{root}/*"},
        {"Sid": "Expire", "Effect": "Allow", "Action": "s3:DeleteObject", "Resource": expiring},
        {"Sid": "KeepWhatLanded", "Effect": "Deny", "Action": "s3:DeleteObject", "Resource": f"{root}/{LANDING}/*"},
    ]


USERS = {"BUCKET_USER": running, "BUCKET_READER": reading}
"""What each user may do, by the variable that names it."""


def main() -> None:
    """Make what is missing."""
    config = S3Config.from_environment()
    address = urlsplit(config.endpoint)
    secure = address.scheme == "https"
    keys = config.keys
    client = Minio(address.netloc, credentials=keys, secure=secure, region=config.region)
    bucket = os.environ["BUCKET"]
    if client.bucket_exists(bucket):
        print(f"bucket {bucket} is there")
    else:
        client.make_bucket(bucket)
        print(f"made bucket {bucket}")
    admin = MinioAdmin(endpoint=address.netloc, credentials=keys, secure=secure, region=config.region)
    for variable, rights in USERS.items():
        user = os.environ[variable]
        if user == keys.retrieve().access_key:
            sys.exit(f"{variable} is {user}, as is MinIO's root: give the user of the bucket another name")
        admin.user_add(user, os.environ[f"{variable}_PASSWORD"])
        name = f"{user}-of-{bucket}"
        admin.policy_add(name, policy={"Version": "2012-10-17", "Statement": rights(bucket)})
        admin.policy_set(name, user=user)
        print(f"user {user} has its rights to s3://{bucket}/{ROOT}")


if __name__ == "__main__":
    main()
