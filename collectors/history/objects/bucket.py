"""A bucket: conditional writes by plain HTTP, which pyarrow's file system lacks, all else by that file system."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyarrow import fs

from collectors.errors import HistoryError
from collectors.history.objects.credentials import Credentials, credentials
from collectors.history.objects.settings import ObjectStoreSettings, endpoint_problem, url_of
from collectors.history.objects.signing import signed
from collectors.history.parquet import first_line
from dataplane.clock import NS_PER_S

_BLOCK: Final = 1 << 20
_CODE: Final = re.compile(rb"<Code>([A-Za-z]+)</Code>")
_CONFLICT: Final = frozenset({http.HTTPStatus.CONFLICT, http.HTTPStatus.PRECONDITION_FAILED})


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the bucket: its key below the prefix, its size, and when it was written (UNIX seconds)."""

    key: str
    size_bytes: int
    written_s: float


class Bucket:
    """A bucket and a prefix in it; every method raises HistoryError in one line, without credentials."""

    def __init__(self, settings: ObjectStoreSettings, environment: Mapping[str, str] = os.environ) -> None:
        """Take the credentials of the environment; connect to nothing yet."""
        self._settings = settings
        endpoint = settings.endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
        problem = None if endpoint is None else endpoint_problem(endpoint)
        if problem is not None:
            raise HistoryError(f"object store: AWS_ENDPOINT_URL: {problem}")
        self._region = (
            settings.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        )
        self._credentials: Credentials = credentials(environment)
        self._endpoint = None if endpoint is None else urlsplit(url_of(endpoint))
        self._timeout_s = settings.timeout_ns / NS_PER_S
        prefix = settings.prefix.strip("/")
        self.root: Final = f"{settings.bucket}/{prefix}" if prefix else settings.bucket
        """Bucket and prefix, as the file system has them."""
        self.file_system: Final = self._open()
        """The bucket's file system."""

    def __str__(self) -> str:
        return f"s3://{self.root}"

    def put(self, key: str, path: Path) -> bool:
        """Write a file as an object unless there is one of this key; return whether it was written."""
        host, address, target = self._place(key)
        connection = self._connection(host)
        try:
            digest = _sha256(path)
            headers = signed(
                "PUT",
                target,
                {"host": address, "if-none-match": "*", "content-length": str(path.stat().st_size)},
                payload_sha256=digest,
                credentials=self._credentials,
                region=self._region,
                time=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            )
            with path.open("rb") as file:
                connection.request("PUT", quote(target), file, headers)
            answer = connection.getresponse()
            content = answer.read(_BLOCK)
        except (OSError, http.client.HTTPException, ssl.SSLError) as error:
            raise HistoryError(f"{self}: cannot write {key}: {first_line(error)}") from None
        finally:
            connection.close()
        if answer.status in _CONFLICT:
            return False
        if answer.status != http.HTTPStatus.OK:
            code = _CODE.search(content)
            reason = answer.reason if code is None else code[1].decode()
            raise HistoryError(f"{self}: cannot write {key}: {answer.status} {reason}")
        return True

    def listing(self, below: str) -> list[StoredObject]:
        """Return all objects whose keys begin with a folder's, in order of key; nothing of a missing one."""
        try:
            found = self.file_system.get_file_info(
                fs.FileSelector(f"{self.root}/{below}", recursive=True, allow_not_found=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{self}: cannot list {below}: {first_line(error)}") from None
        return sorted(
            (
                StoredObject(info.path.removeprefix(self.root + "/"), info.size, info.mtime_ns / NS_PER_S)
                for info in found
                if info.type is fs.FileType.File
            ),
            key=lambda stored: stored.key,
        )

    def delete(self, key: str) -> None:
        """Delete an object; no effect if there is none."""
        try:
            self.file_system.delete_file(f"{self.root}/{key}")
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as error:
            raise HistoryError(f"{self}: cannot delete {key}: {first_line(error)}") from None

    def _open(self) -> fs.S3FileSystem:
        own = self._credentials
        options: dict[str, object] = (
            {}
            if self._endpoint is None
            else {
                "scheme": self._endpoint.scheme,
                "endpoint_override": self._endpoint.netloc,
            }
        )
        return fs.S3FileSystem(
            access_key=own.access_key,
            secret_key=own.secret_key,
            session_token=own.session_token,
            region=self._region,
            connect_timeout=self._timeout_s,
            request_timeout=self._timeout_s,
            **options,
        )

    def _place(self, key: str) -> tuple[str, str, str]:
        """Return where to connect to, the header `host`, and the path of an object."""
        if self._endpoint is not None:
            return self._endpoint.netloc, self._endpoint.netloc, f"/{self.root}/{key}"
        host = f"{self._settings.bucket}.s3.{self._region}.amazonaws.com"
        below = self.root.partition("/")[2]
        return host, host, f"/{below}/{key}" if below else f"/{key}"

    def _connection(self, host: str) -> http.client.HTTPConnection:
        if self._endpoint is not None and self._endpoint.scheme == "http":
            return http.client.HTTPConnection(host, timeout=self._timeout_s)
        return http.client.HTTPSConnection(host, timeout=self._timeout_s, context=ssl.create_default_context())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
