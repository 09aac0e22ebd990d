"""Settings of the object store that keeps the long history. Credentials are never in them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from collectors.settings import Positive
from collectors.shards.settings import CollectorLeases
from dataplane.config import Settings
from dataplane.rpc.addresses import is_loopback

_PLAIN = "plain:"


class ObjectStoreSettings(Settings, frozen=True):
    """A bucket of S3, or of a store with the same interface.

    Access key, secret and session token come from the environment (AWS_ACCESS_KEY_ID and so on) or from a profile in
    ~/.aws/credentials.
    """

    bucket: Annotated[str, Meta(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]+$")]
    """The bucket, which must exist."""

    prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._/-]*$")] = "millrace"
    """Beginning of all keys."""

    endpoint: str | None = None
    """URL of the store, https://HOST[:PORT]; http only to loopback, else written `plain:http://...`. Null: that of
    AWS_ENDPOINT_URL, else Amazon's."""

    region: str | None = None
    """Region of the bucket; null: that of AWS_REGION or AWS_DEFAULT_REGION, else us-east-1."""

    shard: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")] = "collector"
    """Name of this collector's part; with `shard` in the collector's settings, the name there."""

    retry_ns: Positive = 5_000_000_000
    """Interval at which closed files are looked for and, after a failure, tried again."""

    timeout_ns: Positive = 10_000_000_000
    """Time without an answer after which a transfer has failed."""

    compact: bool = True
    """Merge each part's files of a day into one; of several collectors the one does it that has the lease."""

    compact_after_ns: Annotated[int, Meta(ge=0)] = 7_200_000_000_000
    """Time after the end of a day (UTC) at which its files are merged."""

    keep_replaced_ns: Annotated[int, Meta(ge=0)] = 3_600_000_000_000
    """Time for which merged files are kept, for queries that have begun to read them."""

    compact_every_ns: Positive = 600_000_000_000
    """Interval at which days to be merged are looked for."""

    leases: CollectorLeases | None = None
    """Storage of the compactor's lease; with `shard` in the collector's settings, that of its own."""

    def __post_init__(self) -> None:
        if self.endpoint is not None and (problem := endpoint_problem(self.endpoint)) is not None:
            raise ValueError(f"endpoint: {problem}")


def endpoint_problem(endpoint: str) -> str | None:
    """Return why a URL may not be used as an object store, None if it may."""
    url = urlsplit(endpoint.removeprefix(_PLAIN))
    if url.scheme not in {"http", "https"} or not url.hostname or url.path not in {"", "/"} or "@" in url.netloc:
        return f"{_without_login(endpoint)!r} is not https://HOST[:PORT]"
    if url.scheme == "http" and not endpoint.startswith(_PLAIN) and not is_loopback(f"{url.hostname}:1"):
        return f"it is neither https nor loopback; to go without encryption, write {_PLAIN}{endpoint}"
    return None


def url_of(endpoint: str) -> str:
    """Return an endpoint's URL without its mark."""
    return endpoint.removeprefix(_PLAIN).rstrip("/")


def _without_login(endpoint: str) -> str:
    """Return an endpoint without what may be a password."""
    before, at, after = endpoint.rpartition("@")
    return f"...@{after}" if at and before else endpoint
