"""Fuzz targets: for each kind of bytes from outside, a function that passes them to the product's own entry point.

A target returns, or refuses in one line with one of the errors that its entry point documents; any other exception is
a crash. Nothing is kept between inputs except what is slow to build and never changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import msgspec
from finsy.proto import p4r
from google.protobuf.message import DecodeError

from collectors.collector import Collector
from collectors.decode.payloads import payloads_of
from collectors.ingest.replay import Replay
from collectors.settings import CollectorSettings, Core, StateSettings
from controller.apiserver.resources.probe_result import ProbeRun
from controller.probing.errors import ProbeError
from controller.probing.running import results
from controller.workloads.nodes.runtimes import bundle
from controller.workloads.nodes.runtimes.base import ContainerOrder
from controller.workloads.nodes.runtimes.errors import ContainerError, ImageError, OrderError
from controller.workloads.nodes.runtimes.images.layout import Layout
from controller.workloads.nodes.runtimes.images.reference import parse_reference
from controller.workloads.nodes.runtimes.reading import child
from controller.workloads.nodes.runtimes.security import HostFolders
from dataplane.clock import VirtualClock
from dataplane.errors import PortError, ProgramError
from dataplane.nic import PcapReader
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeError
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import ForwardingState
from tests.collectors.reports import build_topology
from tests.dataplane.program.mutation import PROGRAMS
from tests.dataplane.switch.p4runtime.conftest import DEVICE, FakeSwitch, arbitration

CORPUS = Path(__file__).parent / "corpus"
SEPARATOR = b"\n%%\n"
"""Between the parts of an input that has several: a program and its P4Info, the files of an image's layout."""
MOST_BYTES, MOST_FILES, MOST_REPORTS = 1 << 20, 1000, 16
_LENGTH = 2
_PART = re.compile(rb"@(\d)")
_READER = Path(child.__file__).with_name("__main__.py")
_MEMORY = Path("/dev/shm")
_SMALL_TABLES = StateSettings(max_flows=4, max_routes=4, max_pending_packets=4)
"""Few reports fill them."""
_FRAMES = (bytes(0), bytes(64), bytes(range(1, 120)))


@dataclass(frozen=True, slots=True)
class Target:
    """A function of bytes, and the errors by which it may refuse them."""

    name: str
    read: Callable[[bytes], object]
    refuses: tuple[type[Exception], ...]
    is_json: bool = False
    """True if inputs are or contain JSON, which is mutated as such, too."""

    def run(self, data: bytes) -> None:
        """Run the target on an input; raise crashes."""
        try:
            self.read(data)
        except self.refuses as error:
            text = str(error)
            if not text or "\n" in text:
                raise AssertionError(f"{self.name}: a refusal is one line, not {text!r}") from error

    def corpus(self) -> list[Path]:
        """Return the committed inputs."""
        return sorted((CORPUS / self.name).iterdir())


@cache
def _reader() -> ModuleType:
    """Return the reader of user files as a module: the real one is a process per request."""
    spec = importlib.util.spec_from_file_location("fuzzed_reader", _READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _asked(request: dict[str, object]) -> bytes:
    """Return the answer of the reader's process, which turns these errors into a line."""
    reader = _reader()
    try:
        answer: bytes = reader.main(json.loads(json.dumps(request)))
    except reader.RefusedError as error:
        raise child.ReadRefusedError(str(error)) from None
    except OSError as error:
        raise child.ReadRefusedError((error.strerror or str(error)).lower()) from None
    return answer


@contextmanager
def _folder() -> Iterator[Path]:
    # In memory where possible: thousands are made per minute.
    with tempfile.TemporaryDirectory(prefix="fuzzing-", dir=_MEMORY if _MEMORY.is_dir() else None) as path:
        yield Path(path)


def _lay_out(data: bytes, folder: Path) -> None:
    """Write an OCI layout: its index, and blobs by their digests, which `@N` in other parts stands for."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    index, *parts = data.split(SEPARATOR)[:10]
    digests: dict[bytes, bytes] = {}

    def named(part: bytes) -> bytes:
        return _PART.sub(lambda match: digests.get(match[1], match[0]), part)

    # Configurations and layers come after the manifests that name them.
    for number, part in reversed(list(enumerate(parts, 1))):
        content = named(part)
        name = hashlib.sha256(content).hexdigest()
        (blobs / name).write_bytes(content)
        digests[b"%d" % number] = f"sha256:{name}".encode()
    (folder / "index.json").write_bytes(named(index))


def _read_image(data: bytes) -> None:
    """Check an OCI layout as before passing it to skopeo, umoci or podman."""
    with _folder() as folder:
        source, copy, linked = folder / "source", folder / "copy", folder / "linked"
        copy.mkdir()
        _lay_out(data, source)
        reference = parse_reference(f"oci:{source}")
        where = {"path": str(source), "folders": [str(folder)], "target": str(copy), "most": MOST_BYTES}
        _asked({"do": "indices", **where})
        layout = Layout.read(copy, reference.name)
        image = layout.select(reference)
        missing = [digest for digest in image.blobs if not layout.has(digest)]
        _asked({"do": "blobs", "blobs": missing, **where})
        layers = [str(layout.blob(digest)) for digest in image.layers]
        _asked({"do": "measure", "files": layers, "archive": False, "most": MOST_BYTES, "entries": MOST_FILES})
        layout.link(image, linked, "image")
        b"".join(layout._archive(image, "image"))


def _read_archive(data: bytes) -> None:
    """Measure an archive of images, and rewrite it without its names."""
    with _folder() as folder:
        source = folder / "archive"
        source.write_bytes(data)
        _asked({"do": "measure", "files": [str(source)], "archive": True, "most": MOST_BYTES, "entries": MOST_FILES})
        _asked({"do": "rename", "source": str(source), "target": str(folder / "renamed")})


async def _answered(_doing: str, _deadline_s: float, request: dict[str, object], **_more: object) -> bytes:
    return _asked(request)


async def _make_config(folder: Path, *, allowed: Path) -> bytes:
    folders = HostFolders(mounts=(allowed,), bundles=(allowed,))
    with ExitStack() as stack:
        spec = await bundle.read_bundle(folder, folders, stack, 60.0)
        order = ContainerOrder(name="c", bundle=folder)
        return json.dumps(
            bundle.config_of(order, spec.process, (), cgroup="/c", seccomp=None, hostname=spec.hostname)
        ).encode()


def _read_bundle(data: bytes) -> None:
    """Make a container's config.json of a bundle's."""
    with _folder() as folder:
        (folder / "bundle" / "rootfs").mkdir(parents=True)
        (folder / "bundle" / "config.json").write_bytes(data)
        with patch.object(bundle, "ask", _answered):
            made = asyncio.run(_make_config(folder / "bundle", allowed=folder))
        process = json.loads(made)["process"]
        assert process["noNewPrivileges"], "a bundle gave its container privileges"


def _read_result(data: bytes) -> None:
    """Read a probe's result, and report it to the API, which must not refuse it."""
    run = results.to_probe_run(results.decode(data), unit="cpu")
    msgspec.json.decode(msgspec.json.encode(run), type=ProbeRun)


def _read_program(data: bytes) -> None:
    """Load a program as a controller pushes it, and run frames through it."""
    text, separator, info = data.partition(SEPARATOR)
    program = load_program(text, info if separator else None)
    Catalog(program)
    state = ForwardingState(program)
    pipeline = InterpretedPipeline(program, state, rng=SplitMix(1))
    for frame in _FRAMES:
        for item in pipeline.ingress([Frame(1, frame)], 10):
            pipeline.egress([Dequeued(item.packet, item.port, item.priority, 10, 0, 0, 0)], 20)


@cache
def entities() -> Program:
    return load_program(PROGRAMS / "p4rt_entities.json", PROGRAMS / "p4rt_entities.p4info.txtpb")


def _write_entries(data: bytes) -> None:
    """Write a batch of entries to a fresh switch, and read everything back."""
    try:
        request = p4r.WriteRequest.FromString(data)
    except DecodeError:
        return  # gRPC refuses it
    switch = FakeSwitch()
    switch.commit(entities())
    core = P4RuntimeCore(switch)
    core.open_stream(lambda _: None).handle(arbitration(1))
    request.device_id = DEVICE
    request.election_id.low, request.election_id.high = 1, 0
    request.role = ""
    try:
        core.write(request)
    finally:
        for update in request.updates:
            with suppress(P4RuntimeError):
                list(core.read(p4r.ReadRequest(device_id=DEVICE, entities=[update.entity])))


def parts_of(data: bytes) -> list[bytes]:
    """Return the reports of an input: each is preceded by its length in two bytes."""
    parts = list[bytes]()
    while len(data) > _LENGTH and len(parts) < MOST_REPORTS:
        size = int.from_bytes(data[:_LENGTH], "big")
        parts.append(data[_LENGTH : _LENGTH + size])
        data = data[_LENGTH + size :]
    return parts


def joined(reports: list[bytes]) -> bytes:
    """Return an input of reports."""
    return b"".join(len(report).to_bytes(_LENGTH, "big") + report for report in reports)


def _receive_reports(data: bytes) -> None:
    """Feed reports to the reference and to native code, which must agree."""
    payloads, problems = parts_of(data), list[object]()
    for core in (Core.REFERENCE, Core.NATIVE):
        settings = CollectorSettings(core=core, state=_SMALL_TABLES)
        collector = Collector(build_topology(), VirtualClock(1000), settings)
        collector.receive_many(payloads_of(payloads))
        snapshot = collector.snapshot()
        problems.append(
            (collector.status().counters, snapshot.links, snapshot.paths, snapshot.reporters, snapshot.jobs)
        )
    assert problems[0] == problems[1], "the reference and native code differ"


def _read_capture(data: bytes) -> None:
    """Read a capture file, and have a collector take the reports in it."""
    descriptor = os.memfd_create("capture")
    try:
        os.write(descriptor, data)
        clock = VirtualClock(0)
        collector = Collector(build_topology(), clock, CollectorSettings())
        with PcapReader(Path(f"/proc/self/fd/{descriptor}")) as reader:
            Replay(collector, clock).run(reader)
    finally:
        os.close(descriptor)


TARGETS = {
    target.name: target
    for target in (
        Target("images", _read_image, (ImageError, child.ReadRefusedError), is_json=True),
        Target("archives", _read_archive, (child.ReadRefusedError,)),
        Target("bundles", _read_bundle, (OrderError, ContainerError), is_json=True),
        Target("results", _read_result, (ProbeError,), is_json=True),
        Target("programs", _read_program, (ProgramError,), is_json=True),
        Target("entries", _write_entries, (P4RuntimeError,)),
        Target("reports", _receive_reports, ()),
        Target("captures", _read_capture, (PortError,)),
    )
}
"""All of them, by name."""
