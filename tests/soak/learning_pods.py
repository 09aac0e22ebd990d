"""Pods in a kernel fabric, placed by a scheduler that learns: in shadow, then, after a restart, live, then as before.

A pod reads of a server in another pod, over the fabric's switches, and ends. Each few of them have an image of their
own, which a node has to unpack before it starts the first of them. The API server, the workload controller and
the nodes' managers (podman beside the server, runc elsewhere) are in one process; the scheduler is one of its own, and
so is its training. `python -m tests.soak.learning_pods --pods 60` prints what came of it.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any, Final

import numpy as np
import yaml

from controller.apiserver.resources import Decision, Pod
from controller.apiserver.resources.pod import Phase
from controller.workloads.nodes.process import serve as serve_node
from controller.workloads.nodes.runtimes.settings import RuntimeKind, RuntimeSettings
from tests.controller.workloads.nodes.busybox_image import podman_environment, remove_podman_storage, write_layout
from tests.controller.workloads.nodes.conftest import PodmanStorage
from tests.integration.placement_world import PlacementWorld, fabric_of

SERVER_NODE: Final = "h1"
NODES: Final = ("h2", "h3", "h4", "h5")
FILE_BYTES: Final = 200_000
WAIT_S: Final = 120.0
AGENT: Final[dict[str, Any]] = {
    "network": {"form": "tokens", "hidden": 32, "heads": 2, "layers": 1, "feed_forward": 32, "deviation": 0.1},
    "training": {
        "buffer": 16,
        "batch": 16,
        "batches": 4,
        "publish_every": 4,
        "train_every": 1,
        "remove_sampled": False,
        "optimiser": "adam",
        "learning_rate": 0.003,
        "loss": "huber",
        "discount": 0.0,
        "nice": 0,
    },
    "decisions": {"exploration": 0.05, "precision": "float32"},
}
"""Settings for learning from few pods: a small network, a buffer that keeps sampled entries, nothing beyond a pod's own
start; and training that does not yield, or it would not start on a busy machine."""
_READY_WITHIN_S: Final = 300.0
"""PyTorch is loaded twice first, 27 s each at a load of 14 on two cores."""
_FIGURE: Final = re.compile(r"^millrace_scheduler_learning_(\w+)\{([^}]*)\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """Results for some pods: seconds from request to start, milliseconds from decision to write."""

    mode: str
    pods: int
    failed: int
    mean_start_s: float
    median_start_s: float
    unpacked: int
    """Pods on a node without their image."""
    decision_p50_ms: float
    decision_p99_ms: float
    first_version: int
    last_version: int
    compared: int
    agreed: int
    regret: float
    by: dict[str, int]
    training: dict[str, int]
    experiences: int


class LearningWorld:
    """A placement world whose scheduler is a process that learns; its pods read of a server."""

    def __init__(self, folder: Path, world: PlacementWorld, address: str, image_bytes: int) -> None:
        self.world, self.address = world, address
        self._folder, self._image_bytes = folder, image_bytes
        self._images: dict[int, str] = {}
        self._random = Random(1)
        self._metrics = ""

    @contextmanager
    def scheduler(self, mode: str) -> Iterator[None]:
        """Run the scheduler until the block ends; then it stops, and saves."""
        learned = {
            "checkpoint": str(self._folder / "pods.ckpt"),
            "shadow": mode != "live",
            "learn": {"agent": AGENT, "save_every": "20s"},
        }
        scores = [{"policy": "least-used"}, {"policy": "learned", "weight": 1000, "settings": learned}]
        if mode == "rule":
            scores.append({"policy": "image-locality", "weight": 1000})
        settings = {
            "api": self.world.place.address,
            "topology": str(self.world.topology),
            "metrics": {"port": 0},
            "profiles": [{"name": "default", "scores": scores}],
        }
        file, log = self._folder / "scheduler.yaml", self._folder / "scheduler.log"
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        log.unlink(missing_ok=True)
        command = [sys.executable, "-m", "controller.apps.cli", "scheduler", "serve", "-s", str(file)]
        with log.open("w", encoding="utf-8") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            self.world.until(
                lambda: "ready: " in log.read_text(encoding="utf-8") or process.poll() is not None,
                "a scheduler that is ready",
                _READY_WITHIN_S,
            )
            match = re.search(r"metrics at (\S+)", log.read_text(encoding="utf-8"))
            assert match is not None, log.read_text(encoding="utf-8")
            self._metrics = match[1]
            yield
        except AssertionError as error:
            error.add_note(log.read_text(encoding="utf-8")[-5000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(WAIT_S)
        assert status == 0, log.read_text(encoding="utf-8")

    def figures(self) -> dict[str, float]:
        """Return the scheduler's figures of learning, by their names and labels' values."""
        with urllib.request.urlopen(self._metrics, timeout=10) as answer:
            text: str = answer.read().decode()
        return {
            " ".join((name, *re.findall(r'"([^"]*)"', labels))): float(figure)
            for name, labels, figure in _FIGURE.findall(text)
        }

    def image(self, number: int) -> str:
        """Return a unique image: busybox, and incompressible bytes."""
        if number not in self._images:
            folder = self._folder / f"image-{number}"
            write_layout(folder, files={"payload": self._random.randbytes(self._image_bytes)})
            self._images[number] = f"oci:{folder}:latest"
        return self._images[number]

    def serve_file(self) -> None:
        """Run a pod that serves a file; it has all of its node's cores, so that the others go elsewhere."""
        self.world.apply(
            f"""
pod:
  name: server
  image: IMAGE
  command: [sh, -c, "dd if=/dev/zero of=/tmp/data bs=1000 count={FILE_BYTES // 1000}; exec httpd -f -p 8080 -h /tmp"]
  location: {{node: {SERVER_NODE}}}
  cpu: 4
  stop_grace: 1 s
""",
            "--wait",
        )

    def place(self, name: str, image: int) -> None:
        """Create a pod that reads from the server and ends."""
        reads = f"for i in 1 2 3; do wget -q -O /dev/null http://{self.address}:8080/data || exit 1; done"
        self.world.apply(
            f"""
pod:
  name: {name}
  image: {self.image(image)}
  command: [sh, -c, "{reads}"]
  cpu: 500m
  memory: 64 MiB
  restart: never
  peers: [{{pod: server, min_bandwidth: 1 Mbit/s}}]
  stop_grace: 1 s
"""
        )

    def part(self, mode: str, numbers: range, each: int) -> Part:
        """Place pods one after another, a few per image, and return the results."""
        # Built first: it costs CPU time that the daemons need.
        for number in numbers:
            self.image(number // each)
        before, unpacked, had = self.figures(), 0, set[tuple[int, str]]()
        starts, decisions, failed = list[float](), list[float](), 0
        for number in numbers:
            name, image = f"{mode}-{number}", number // each
            self.place(name, image)
            pod = self.world.wait_for(
                name, lambda pod: pod.status.phase in (Phase.SUCCEEDED, Phase.FAILED), "it has ended"
            )
            failed += pod.status.phase is Phase.FAILED
            started_ns = pod.status.started_ns or pod.status.finished_ns
            assert started_ns is not None
            why = self.world.client.of(Decision).get(str(pod.status.decision)).spec
            key = (image, why.placements[0].node)
            unpacked += key not in had
            had.add(key)
            starts.append((started_ns - pod.metadata.created_ns) / 1e9)
            assert why.decided_ns is not None
            assert why.begun_ns is not None
            decisions.append((why.decided_ns - why.begun_ns) / 1e6)
        after = self.figures()

        def grown(name: str) -> float:
            return after.get(name, 0.0) - before.get(name, 0.0)

        by = ("network", "exploration", "fallback", "others")
        return Part(
            mode=mode,
            pods=len(numbers),
            failed=failed,
            mean_start_s=round(mean(starts), 3),
            median_start_s=round(median(starts), 3),
            unpacked=unpacked,
            decision_p50_ms=round(float(np.percentile(decisions, 50)), 2),
            decision_p99_ms=round(float(np.percentile(decisions, 99)), 2),
            first_version=int(before["version pods default"]),
            last_version=int(after["version pods default"]),
            compared=int(grown("compared_total pods default")),
            agreed=int(grown("agreed_total pods default")),
            regret=round(grown("regret_total pods default"), 3),
            by={kind: int(grown(f"decisions_total {kind} pods default")) for kind in by},
            training={
                kind: int(grown(f"training_total {kind} pods default"))
                for kind in ("decisions", "steps", "dropped", "refused", "restarts")
            },
            experiences=int(grown("experiences_total pods started default")),
        )


@contextmanager
def learning_world(folder: Path, image_bytes: int) -> Iterator[LearningWorld]:
    """Run a fabric, its nodes and a server while the block lasts."""
    environment = podman_environment(folder / "podman")
    digest = write_layout(folder / "image")
    storage = PodmanStorage(folder / "podman", environment, f"oci:{folder / 'image'}:latest", digest)
    try:
        with (
            PlacementWorld(folder, storage, schedules=False) as world,
            fabric_of(world.topology, folder) as fabric,
        ):
            names = (SERVER_NODE, *NODES)
            for name in names:
                more: dict[str, Any] = {"network_namespace": fabric.namespace(name)}
                if name != SERVER_NODE:
                    more["runtime"] = RuntimeSettings(kind=RuntimeKind.RUNC, image_folders=(folder,))
                world.start(serve_node, world.node_settings(name, **more))
            world.until_ready(*names)
            learning = LearningWorld(folder, world, str(fabric.topology.host[SERVER_NODE].ipv4), image_bytes)
            yield learning
            names_of_pods = " ".join(pod.metadata.name for pod in world.client.of(Pod).list().items)
            world.run(f"pod delete {names_of_pods} --wait")
    finally:
        remove_podman_storage(folder / "podman", environment)


MODES: Final = ("shadow", "live", "rule", "again")
"""The network watches least-used, decides, watches a rule that knows which node has an image, and least-used again."""


def play(folder: Path, pods: int, each: int, image_bytes: int) -> list[Part]:
    """Place this many pods in each mode, with a restart before each; return the results."""
    parts: list[Part] = []
    with learning_world(folder, image_bytes) as world:
        for number, mode in enumerate(MODES):
            with world.scheduler(mode):
                if not number:
                    world.serve_file()
                parts.append(world.part(mode, range(number * pods, (number + 1) * pods), each))
    return parts


def main() -> None:
    """Run all, and print the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=60, help="in each of the four parts")
    parser.add_argument("--each", type=int, default=6, help="pods of one image")
    parser.add_argument("--image-mb", type=int, default=64)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        parts = play(Path(folder), given.pods, given.each, given.image_mb * 1_000_000)
    print(json.dumps({"parts": [asdict(part) for part in parts], "took_s": round(time.monotonic() - began)}, indent=1))


if __name__ == "__main__":
    main()
