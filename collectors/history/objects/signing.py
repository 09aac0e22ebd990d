"""Signature of a request to S3, AWS Signature Version 4 (docs.aws.amazon.com, "Signing AWS API requests").

Signed are the method, the path, and the headers given; the payload by its SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import quote

from collectors.history.objects.credentials import Credentials

_ALGORITHM = "AWS4-HMAC-SHA256"


def signed(
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    payload_sha256: str,
    credentials: Credentials,
    region: str,
    time: str,
) -> dict[str, str]:
    """Return the headers of a request with its signature; `time` is UTC as 20260131T235959Z, `path` is not quoted."""
    headers = {**headers, "x-amz-content-sha256": payload_sha256, "x-amz-date": time}
    if credentials.session_token is not None:
        headers["x-amz-security-token"] = credentials.session_token
    lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    names = sorted(lower)
    canonical = "\n".join(
        [method, quote(path), "", *(f"{name}:{lower[name]}" for name in names), "", ";".join(names), payload_sha256]
    )
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    text = "\n".join([_ALGORITHM, time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (time[:8], region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["Authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={';'.join(names)},"
        f" Signature={signature}"
    )
    return headers
