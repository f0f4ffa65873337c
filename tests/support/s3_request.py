# SPDX-License-Identifier: Apache-2.0
"""Sends one signed S3 request, with a separate signer: tests make buckets and check the server's state with it.

Endpoint and keys come from AWS_ENDPOINT_URL_S3, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, as for the client.
"""
import datetime
import hashlib
import hmac
import http.client
import os
import ssl
import urllib.parse


def request(method, path, body=b""):
    """Send one request with a percent-encoded path; return (status, body)."""
    url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL_S3"])
    region = os.environ.get("AWS_REGION", "us-east-1")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    raw_path, _, query = path.partition("?")
    query = "&".join(sorted(item if "=" in item else item + "=" for item in query.split("&") if item))
    digest = hashlib.sha256(body).hexdigest()
    fields = {"host": url.netloc, "x-amz-date": now, "x-amz-content-sha256": digest}
    names = ";".join(sorted(fields))
    canonical = "\n".join([method, raw_path, query] + [f"{name}:{fields[name]}" for name in sorted(fields)] + ["", names, digest])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
    for part in (now[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    fields["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={os.environ['AWS_ACCESS_KEY_ID']}/{scope}, SignedHeaders={names}, "
                               f"Signature={signature}")
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
        connection = http.client.HTTPSConnection(url.netloc, timeout=60, context=context)
    else:
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
    connection.request(method, raw_path + ("?" + query if query else ""), body=body, headers=fields)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data
