"""A real HTTP server of S3's interface, moto's, that can be stopped and started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from pyarrow import fs

from collectors.history.objects.bucket import Bucket
from collectors.history.objects.settings import ObjectStoreSettings
from tests.waiting import wait_until

_ROOT = Path(__file__).parents[4]
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrEXAMPLEKEY"}


class Moto:
    """moto_server on a port of its own, with a bucket `long`; what it holds is in memory."""

    def __init__(self, folder: Path) -> None:
        program = Path(os.environ.get("MILLRACE_S3_FOLDER", _ROOT / ".venv-s3")) / "bin" / "moto_server"
        if not program.exists():
            pytest.skip("an object store needs an environment of its own: make .venv-s3/.ready")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._command = [str(program), "-H", "127.0.0.1", "-p", str(self.port)]
        self._log = folder / "moto.log"

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Moto:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        try:
            wait_until(self._answers, "moto_server does not answer")
        except AssertionError:
            self.__exit__()
            raise
        store = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            access_key="any",
            secret_key="any",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        store.create_dir("long")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """Let requests wait."""
        self._process.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        """Answer again."""
        self._process.send_signal(signal.SIGCONT)

    def settings(self, **more: object) -> ObjectStoreSettings:
        """Return settings of the bucket."""
        return ObjectStoreSettings(bucket="long", endpoint=self.endpoint, timeout_ns=2_000_000_000, **more)  # type: ignore[arg-type]

    def bucket(self, **more: object) -> Bucket:
        """Return the bucket."""
        return Bucket(self.settings(**more), ENVIRONMENT)

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
