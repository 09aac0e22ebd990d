"""Every query of the Grafana dashboards, asked of a real Prometheus that scrapes a real `millrace up`.

The fabric is in the kernel, with a job of in-network aggregation, nodes and pods. Queries that found nothing are
printed, and the exit status is 1. As root; needs `prometheus` (Debian's package).

Usage: python -m tests.soak.dashboards [--prometheus PROGRAM] [--limit-s S]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import httpx

from controller.apps.up.remains import NAMESPACES
from controller.apps.up.state import free_port
from dataplane.topology.file import dumps, load_topology
from tests.dashboards import targets
from tests.soak.up import START_S, Running, running

ROOT: Final = Path(__file__).parents[2]
DASHBOARDS: Final = (
    ROOT / "collectors" / "grafana" / "dashboard.json",
    ROOT / "deploy" / "container" / "grafana" / "dashboards" / "control.json",
)
EMPTY_WHEN_WELL: Final = {"Drops": "asks for drops above 0"}
"""Panels that show nothing while nothing is wrong, with the reason."""
_TOPOLOGY: Final = "leaf-spine:spines=2,leaves=2,hosts=2"
_WORKERS: Final = ("h1", "h2", "h3", "h4")
# Packets that take 5 ms to be sent, as by default, tell too little of clocks for delays to be corrected by them.
_MORE: Final = "nodes: {h1: {}, h2: {}}\nfabric: {rate_divisor: 600}\n"
_WORKER: Final = """
import sys
import numpy as np
from dataplane.allreduce.membership import Membership

address, host, workers = sys.argv[1:]
with Membership.join(address, job="ring", host=host, workers=int(workers), deadline_s=120) as member:
    values = np.ones(100_000, np.float32)
    while True:
        member.reducer.all_reduce(values)
"""
_BURSTS: Final = """
import socket, sys, time

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as burst:
    while True:
        for _ in range(500):
            burst.sendto(bytes(1000), (sys.argv[1], 9))
        time.sleep(5.0)
"""
"""More at once than a queue holds: a link's loss is unknown until a switch has reported a drop."""
_MANIFEST: Final = "pod: {name: sleeper-%d, image: docker.io/library/busybox, command: [sleep, '600'], cpu: 100m}\n"


@contextmanager
def _prometheus(program: str, folder: Path, ports: dict[str, int]) -> Iterator[httpx.Client]:
    """Run Prometheus over the daemons' metrics while the block lasts; yield a client of its API."""
    jobs = [
        {"job_name": f"millrace-{name}", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for name, port in ports.items()
    ]
    settings = folder / "prometheus.yml"
    settings.write_text(json.dumps({"global": {"scrape_interval": "2s"}, "scrape_configs": jobs}), "utf-8")
    port = free_port(0)
    command = [program, f"--config.file={settings}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
            yield client
    finally:
        process.terminate()
        process.wait()


def _asked(expression: str) -> str:
    """Return an expression with Grafana's variables replaced."""
    everything = dict.fromkeys(("$src", "$dst", "$instance", "$switch"), ".*")
    for name, value in {"$__rate_interval": "30s", "$top": "10", **everything}.items():
        expression = expression.replace(name, value)
    return expression


def _results(client: httpx.Client, expression: str) -> int:
    answer: dict[str, Any] = client.get("/api/v1/query", params={"query": _asked(expression)}).json()
    if answer["status"] != "success":
        raise ValueError(f"{expression}: {answer['error']}")
    return len(answer["data"]["result"])


def _metrics_ports(up: Running) -> dict[str, int]:
    """Return the port of each daemon's metrics, by the daemon's name."""
    state = up.status()
    assert state is not None, "no answer from the supervisor"
    return {
        daemon.name: int(match[1])
        for daemon in state.daemons
        for address in daemon.addresses.values()
        if (match := re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", address))
    }


def missing_queries(program: str, limit_s: float) -> tuple[list[str], int]:
    """Return the queries that found nothing within a time, and the number of all."""
    folder = Path(tempfile.mkdtemp(prefix="millrace-dashboards-"))
    try:
        with ExitStack() as stack:
            jobs = f"unix:{folder}/jobs.sock"
            # Drop reports tell losses, and clocks are estimated where a topology does not call them synchronised.
            served = f'jobs: {{listen: "{jobs}"}}\n  reporting: {{drops: [{{}}]}}'
            apart = folder / "topology.yaml"
            topology = load_topology(_TOPOLOGY)
            apart.write_text(dumps(replace(topology, synchronised_clocks=False)), "utf-8")
            up = stack.enter_context(running(folder, str(apart), "kernel", more=_MORE, controller=served))
            up.until_green(START_S)
            environ = {
                **os.environ,
                "XDG_RUNTIME_DIR": str(folder / "run"),
                "HOME": str(folder),
                "PYTHONPATH": str(ROOT),
            }
            cli = [sys.executable, "-m", "controller.apps.cli"]
            first, last = _WORKERS[0], _WORKERS[-1]
            scripts = [(host, (_WORKER, jobs, host, str(len(_WORKERS)))) for host in _WORKERS]
            for host, script in (*scripts, (first, (_BURSTS, str(topology.host[last].ipv4)))):
                # Not `fabric exec`: the machine may have other fabrics, and this one's name is of no use elsewhere.
                inside = ["nsenter", f"--net={up.socket.parent / NAMESPACES / host}"]
                process = subprocess.Popen([*inside, sys.executable, "-c", *script], env=environ)
                stack.callback(process.wait)
                stack.callback(process.terminate)
            for number in range(3):
                pod = [*cli, "pod", "apply", "-f", "-"]
                subprocess.run(
                    pod, input=_MANIFEST % number, text=True, env=environ, check=True, stdout=subprocess.DEVNULL
                )
            client = stack.enter_context(_prometheus(program, folder, _metrics_ports(up)))
            return _asked_until(client, limit_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _asked_until(client: httpx.Client, limit_s: float) -> tuple[list[str], int]:
    queries = {
        f"{panel['title']}: {target['expr']}": target["expr"]
        for path in DASHBOARDS
        for panel, target in targets(json.loads(path.read_text("utf-8")))
        if panel["title"] not in EMPTY_WHEN_WELL
    }
    left, deadline = dict(queries), time.monotonic() + limit_s
    while left and time.monotonic() < deadline:
        time.sleep(2.0)
        try:
            left = {name: expression for name, expression in left.items() if not _results(client, expression)}
        except httpx.TransportError:  # not up yet
            continue
    return sorted(left), len(queries)


def main() -> int:
    """Print what found nothing; 1 if something did not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prometheus", default="prometheus")
    parser.add_argument("--limit-s", type=float, default=120.0)
    options = parser.parse_args()
    missing, asked = missing_queries(options.prometheus, options.limit_s)
    for query in missing:
        print(f"nothing for {query}")
    print(f"{asked - len(missing)} of {asked} queries found something")
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
