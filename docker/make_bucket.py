#!/opt/headrace/.venv/bin/python
"""Makes the bucket that BUCKET names, unless it is there: what the service `bucket` of compose.yaml runs once."""

import os
from urllib.parse import urlsplit

from minio import Minio

from headrace_snapshots.store.s3 import S3Config

config = S3Config.from_environment()
address = urlsplit(config.endpoint)
client = Minio(
    address.netloc,
    access_key=config.access_key,
    secret_key=config.secret_key,
    secure=address.scheme == "https",
    region=config.region,
)
bucket = os.environ["BUCKET"]
if client.bucket_exists(bucket):
    print(f"bucket {bucket} is there")
else:
    client.make_bucket(bucket)
    print(f"made bucket {bucket}")
