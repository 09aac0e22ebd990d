"""Credentials of an object store, from where Amazon's tools take them: the environment, then a profile's file."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.errors import HistoryError
from dataplane.given import SECRET_BYTES, read_given


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret; neither is shown."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def credentials(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials; raise HistoryError where there are none."""
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return Credentials(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            environment.get("AWS_SESSION_TOKEN") or None,
        )
    path = environment.get("AWS_SHARED_CREDENTIALS_FILE")
    file = Path(path) if path else Path(environment.get("HOME", "/")) / ".aws" / "credentials"
    profile = environment.get("AWS_PROFILE") or "default"
    try:
        text = read_given(str(file), SECRET_BYTES).decode()
    except FileNotFoundError:
        raise HistoryError(
            f"object store: no credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY nor {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise HistoryError(f"object store: credentials in {file}: {reason}") from None
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(text)
        section = parser[profile]
        return Credentials(
            section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token")
        )
    except (configparser.Error, KeyError):
        # Not the parser's own words: they quote the line, which may be the secret.
        raise HistoryError(f"object store: credentials in {file}: profile {profile} has no valid keys") from None
