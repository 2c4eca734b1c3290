"""Reads a Zarr v3 array from S3 with tensorstore: `read.py ENDPOINT BUCKET PATH`; prints the seconds."""

import sys
import time

import tensorstore

endpoint, bucket, path = sys.argv[1:]
spec = {
    "driver": "zarr3",
    "kvstore": {
        "driver": "s3",
        "bucket": bucket,
        "path": path + "/",
        "endpoint": endpoint,
        "aws_region": "us-east-1",
        "aws_credentials": {"type": "environment"},
    },
}
array = tensorstore.open(spec, open=True, read=True).result()
began = time.perf_counter()
values = array.read().result()
print(time.perf_counter() - began)
assert values.any()
