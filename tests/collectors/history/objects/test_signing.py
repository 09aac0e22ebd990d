"""Signatures as Amazon's documentation computes them, and where credentials come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.errors import HistoryError
from collectors.history.objects.credentials import Credentials, credentials
from collectors.history.objects.signing import signed

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
"""The keys of the example "PUT Object" in "Signature Calculations for the Authorization Header"."""


def test_documented_example_has_its_signature() -> None:
    headers = signed(
        "PUT",
        "/test$file.text",
        {
            "Date": "Fri, 24 May 2013 00:00:00 GMT",
            "Host": "examplebucket.s3.amazonaws.com",
            "x-amz-storage-class": "REDUCED_REDUNDANCY",
        },
        payload_sha256="44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
        credentials=EXAMPLE,
        region="us-east-1",
        time="20130524T000000Z",
    )
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        " SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
        " Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    )


def test_environment_comes_before_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = A\naws_secret_access_key = B%\n[other]\naws_access_key_id = C\n")
    where = {"AWS_SHARED_CREDENTIALS_FILE": str(file)}
    assert credentials(where) == Credentials("A", "B%")
    own = {"AWS_ACCESS_KEY_ID": "X", "AWS_SECRET_ACCESS_KEY": "Y", "AWS_SESSION_TOKEN": "Z"}
    assert credentials(where | own) == Credentials("X", "Y", "Z")
    with pytest.raises(HistoryError, match=r"profile other has no valid keys$"):
        credentials(where | {"AWS_PROFILE": "other"})


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    assert "wJalr" not in repr(EXAMPLE)
    file = tmp_path / "credentials"
    file.write_text("aws_secret_access_key = topsecret\n")
    with pytest.raises(HistoryError) as raised:
        credentials({"AWS_SHARED_CREDENTIALS_FILE": str(file)})
    assert "topsecret" not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_credentials_are_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=f"AWS_SECRET_ACCESS_KEY nor {tmp_path}/.aws/credentials$"):
        credentials({"HOME": str(tmp_path)})
