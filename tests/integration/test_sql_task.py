"""A SQL task from `task submit` to `task logs`: workers on hosts of a kernel fabric, sums added up by its switch."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.waiting import HANG_S, wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
HOSTS = {"h1": "10.0.1.1:7700", "h2": "10.0.1.2:7700"}
NAME = f"sql-task-{os.getpid()}"
TOPOLOGY = f"""
millrace: 1
name: {NAME}
collector: {{host: c1}}
defaults: {{access: {{rate: 1 Gbit/s, delay: 10 us}}}}
switches: [{{name: s1}}]
hosts: [{{name: h1, switch: s1}}, {{name: h2, switch: s1}}, {{name: c1, switch: s1}}]
links: []
"""
SQL = "SELECT item, sum(price), count(*) FROM lines WHERE price < 900 GROUP BY item ORDER BY item"
ROWS, ITEMS = 100_000, 20_000


class Site:
    """`millrace up` with a kernel fabric and a centre of two units, one on each host, while the `with` block lasts."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        self.open = folder / "open"

    def __enter__(self) -> Site:
        for name, mode in (("state", 0o700), ("run", 0o700), ("open", 0o755)):
            (self._folder / name).mkdir(mode=mode)
        (self._folder / "star.yaml").write_text(TOPOLOGY)
        (self._folder / "hardware.yaml").write_text("millrace: 1\nswitch: {setup_s: 0}\ntie_band: 0\n")
        secret = self._folder / "secret"
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        cores = sorted(os.sched_getaffinity(0))[:2]
        jobs = f"unix:{self._folder}/jobs"
        score = {"policy": "operator-devices", "settings": {"hardware": str(self._folder / "hardware.yaml")}}
        settings = {
            "topology": "star.yaml",
            "time": "kernel",
            "controller": {"jobs": {"listen": jobs}},
            "scheduler": {
                "tasks": {"profiles": [{"name": "accelerated", "scores": [{"policy": "finish-time"}, score]}]}
            },
            "centres": {
                "east": {
                    "hosts": list(HOSTS),
                    "units": [{"name": "core", "cores": 1}],
                    "local": {"cores": ",".join(map(str, cores)), "writable": [str(self.open)]},
                    "trial": {"kernels": ["filter-scan", "aggregate", "sort"]},
                    "sql": {"workers": list(HOSTS.values()), "secret_file": str(secret), "job_service": jobs},
                }
            },
        }
        (self._folder / "up.yaml").write_text(json.dumps(settings))
        with ExitStack() as stack:
            up = stack.enter_context(self._started("up", "--settings", str(self._folder / "up.yaml")))
            wait_until(lambda: self._says(up, "centre-east metrics"), lambda: self._log(up), limit_s=HANG_S)
            wait_until(lambda: "1 of 1 switches reconciled" in self.millrace("status").stdout, "no switch is ready")
            fabrics = json.loads(self.millrace("fabric", "list", "--format", "json").stdout)
            (fabric,) = (row["fabric"] for row in fabrics if row["topology"] == NAME)
            for host, address in HOSTS.items():
                worker = ("accel", "worker", "--listen", address, "--secret-file", str(secret))
                command = (sys.executable, "-m", "controller.apps.cli", *worker)
                log = stack.enter_context(self._started("fabric", "exec", "--fabric", fabric, host, *command))
                wait_until(lambda log=log, host=host: self._says(log, HOSTS[host]), lambda log=log: self._log(log))  # type: ignore[misc]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def millrace(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        command = (sys.executable, "-m", "controller.apps.cli", *words)
        return subprocess.run(
            command,
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
        )

    @contextmanager
    def _started(self, *words: str) -> Iterator[str]:
        """Run a command until the end of the block; yield the name of its log."""
        name = f"{'-'.join(words[:3]).replace('/', '-')}.log"
        command = (sys.executable, "-m", "controller.apps.cli", *words)
        with (self._folder / name).open("w") as log:
            process = subprocess.Popen(
                command, env=self._environment, cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
            try:
                yield name
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(HANG_S)

    def _log(self, name: str) -> str:
        return (self._folder / name).read_text()

    def _says(self, name: str, words: str) -> bool:
        return words in self._log(name)


def test_a_statement_is_planned_run_over_the_fabric_and_answered(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    rng = np.random.default_rng(1)
    with Site(tmp_path) as site:
        lines = site.open / "lines.parquet"
        pq.write_table(pa.table({"item": rng.integers(0, ITEMS, ROWS), "price": rng.integers(0, 1000, ROWS)}), lines)
        lines.chmod(0o644)
        (tmp_path / "sums.sql").write_text(SQL)
        options = ("--name", "sums", "--units", "2", "--wait", "--timeout", str(HANG_S), "--table", f"lines={lines}")
        done = site.millrace("task", "submit", *options, "--", "sums.sql")
        assert "units share the rows of lines" in done.stdout, done.stderr
        assert "by 2 workers, whose sums switches added up," in done.stderr, done
        explained = site.millrace("task", "explain", "sums").stdout
        assert "cpu+switch" in explained
        assert "s expected" in explained
        logs = site.millrace("task", "logs", "sums")
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE VIEW lines AS FROM '{lines}'")
        rows = ["\t".join(map(str, row)) for row in connection.sql(SQL).fetchall()]
    assert logs.stdout.splitlines() == rows
