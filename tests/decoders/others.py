"""Decoders of files and messages of jobs, sessions, clusters, agents and path servers, and of kept state."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from collectors.statistics import sketch
from controller.apiserver.sessions.frames import (
    Frame,
    FrameDecoder,
    Stream,
    error_frame,
    exit_code_of,
    exit_frame,
    resize_frame,
    resize_of,
)
from controller.apiserver.sessions.values import TerminalSize
from controller.apps.demo.packet.parts import parts_of
from controller.apps.up.supervision.lines import LineSplitter
from controller.cluster.alto.requests import read as read_alto
from controller.cluster.alto.values import EndpointCostRequest, NetworkFilter, PropertyRequest
from controller.common.errors import AltoError, InvalidError
from controller.learning.agent import records
from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings
from controller.learning.errors import LearningError
from controller.learning.values import COMMON, Experience, Observation
from controller.memory import frames as memory_frames
from controller.memory import messages as memory_messages
from controller.memory.errors import RefusedError
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.paths.service import paths_pb2
from controller.network.paths.service.messages import route_set_message, route_set_of
from controller.probing.errors import ProbeError
from controller.probing.running import reading, results
from controller.probing.running.report import Outcome
from controller.scheduling.extender.messages import MalformedError, read_arguments, read_binding, read_preemption
from controller.workloads.centres.engines.containers.engine import files_in
from controller.workloads.centres.engines.jobs.keeping import Ended, read_record
from controller.workloads.centres.engines.slurm.answers import jobs_in, nodes_in
from controller.workloads.centres.errors import EngineError
from controller.workloads.nodes.guard import lease_file
from dataplane.errors import WireError
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import parse
from dataplane.topology.file import load_topology
from tests.decoders.decoding import DEEP, DEEP_KEY, Decoder
from tests.reference.flow_key import read_fields

T = TypeVar("T")

_BODIES = Path(__file__).parents[1] / "controller" / "scheduling" / "extender" / "bodies"
_FRAME = bytes.fromhex(
    "020000000002 020000000001 8100 b00a 0800 45000021000100004011 66c9 0a0000010a000002 13881771000d0000"
)
_FRAME6 = (
    bytes.fromhex("020000000002 020000000001 86dd 60000000 0018 2c 40")
    + bytes(31)
    + b"\x01"
    + bytes.fromhex("1100 0000 00000001 1388 1771 0010 0000 0102030405060708")
)
_MARK = b"-----BEGIN MILLRACE JOB-----", b"-----END MILLRACE JOB-----"
_PROBE = b"""{"millrace": 1, "name": "p", "category": "hpc", "uses": [{"name": "a", "kernel": "dgemm", "version": 1,
"implementation": {"device": "cpu", "library": "numpy", "entry": "m:dgemm"}, "tolerance": 1e-9, "sizes": {"n": 8}}]}"""
_RESULT = results.RunResult(
    probe="p",
    units=2,
    cores=4,
    outcome=Outcome.SUCCEEDED,
    repetitions=(results.Repetition(1.5, {"a": (0.1, 0.2)}, {"a": 1e-12}),),
    cpu_s={"a": 0.1},
)
_NODES = {
    "nodes": [
        {"name": "n1", "state": "mixed", "cpus": 8, "idle_cpus": 3, "real_memory": 4096, "alloc_memory": 7}
        | {"partitions": ["all"], "state_flags": ["DRAIN"], "reason": "a disk", "gres": "gpu:1"}
    ]
}
_JOBS = {
    "jobs": [
        {"job_id": 7, "job_state": "FAILED", "name": "x", "exit_code": 256, "state_reason": "NonZeroExitCode"}
        | {"comment": json.dumps({"labels": {"centre": "c"}, "unit": "u", "units": 1})}
    ]
}
_TOPOLOGY = load_topology("leaf-spine")
_SMALL = AgentSettings(network=NetworkSettings(hidden=8, heads=1, layers=1, feed_forward=8))
_ENDED = Ended(1, "exit code 1", 17, 18, 0.5, 4096)


def _sketch() -> sketch.Sketch:
    filled = sketch.Sketch()
    for number in (3, 3, 200, 70_000, 1 << 40):
        filled.add(number)
    return filled


def _routes() -> bytes:
    flow = FlowSpec("h1", "h2", 17, 5000, 6001)
    routes = (Route(flow, ("s1", "s2")), Route(FlowSpec("h2", "h1"), ("s2", "s1")))
    return route_set_message(RouteSet(3, routes, (WeightedRoute("s1", "h2", (("s2", 2),)),))).SerializeToString()


def _seen() -> Observation:
    return Observation(np.arange(COMMON + 4, dtype=np.float32), np.array([True, False]))


def _lived() -> bytes:
    return records.experience_to_bytes(Experience(_seen(), 1, -0.5, _seen(), 1_000))


def _experiences_again(data: bytes) -> bytes:
    """Return experiences decoded and encoded again: they hold arrays and NaNs."""
    experiences = records.experiences_from_bytes(data)
    return records.experiences_to_bytes([records.experience_to_bytes(experience) for experience in experiences])


def _checkpoint(content: bytes) -> bytes:
    line = records.checkpoint_to_bytes(new_checkpoint(_SMALL, _seen(), "nodes")).partition(b"\n")[0]
    return line + b"\n" + hashlib.sha256(content).digest() + content


def _of_a_file(read: Callable[[Path], T]) -> Callable[[bytes], T]:
    """Return a function of bytes from one that opens a file without following links."""

    def read_bytes(data: bytes) -> T:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            return read(Path(file.name))

    return read_bytes


def _parcel(packed: bytes) -> bytes:
    return b64encode(zlib.compress(packed)).join((b"said\n" + _MARK[0], _MARK[1]))


def _json(
    name: str, read: Callable[[bytes], Any], refuses: type[Exception], *goldens: bytes, harmful: tuple[bytes, ...] = ()
) -> Decoder:
    return Decoder(name, read, goldens, refuses=(refuses,), harmful=harmful)


def _extender(read: Callable[[bytes], Any], *bodies: str) -> Decoder:
    goldens = (msgspec.json.encode(msgspec.json.decode((_BODIES / body).read_bytes())) for body in bodies)
    return _json(f"{read.__module__}.{read.__name__}", read, MalformedError, *goldens)


def _alto(schema: type[Any], **fields: Any) -> Decoder:
    read = partial(read_alto, schema=schema)
    value = json.dumps(fields).replace("_", "-").encode()
    return _json("controller.cluster.alto.requests.read", read, AltoError, value)


OTHERS = (
    Decoder(
        "collectors.statistics.sketch.from_bytes",
        sketch.from_bytes,
        (_sketch().to_bytes(),),
        refuses=(msgspec.DecodeError,),
        write=sketch.Sketch.to_bytes,
    ),
    Decoder(
        "controller.apps.demo.packet.parts.parts_of",
        lambda data: parts_of(data, _TOPOLOGY),
        (_FRAME[:12] + _FRAME[16:],),  # without its VLAN tag
        refuses=(WireError,),
        may_be_cut=True,
    ),
    Decoder(
        "controller.memory.frames.decode",
        memory_frames.decode,
        (memory_frames.encode(memory_frames.Frame(memory_frames.Kind.WRITE, 2, 1 << 62, 9, b"block")),),
        write=memory_frames.encode,
    ),
    Decoder(
        "controller.memory.frames.Header.decode",
        memory_frames.Header.decode,
        (memory_frames.Frame(memory_frames.Kind.READ, 1, 7, 2).header().encode(),),
        write=memory_frames.Header.encode,
    ),
    Decoder(
        "controller.memory.messages.decoded",
        lambda data: memory_messages.decoded(data, memory_messages.Run),
        (memory_messages.encoded(memory_messages.Run(reads=(1, 2), writes=((3, 4),), int_operations=5)),),
        refuses=(RefusedError,),
        write=memory_messages.encoded,
    ),
    Decoder("tests.reference.flow_key.read_fields", read_fields, (_FRAME, _FRAME6), (), may_be_cut=True),
    Decoder(
        "controller.network.paths.service.messages.route_set_of",
        lambda data: route_set_of(parse(paths_pb2.RouteSet, data)),
        (_routes(),),
        refuses=(MessageError,),
        may_be_cut=True,
    ),
    Decoder(
        "controller.apiserver.sessions.frames.FrameDecoder.feed",
        lambda data: list(FrameDecoder().feed(data)),
        (Frame(Stream.STDIN, b"ls\n").encode() + exit_frame(-1).encode() + error_frame("no").encode(),),
        refuses=(InvalidError,),
        write=lambda frames: b"".join(frame.encode() for frame in frames),
        may_be_cut=True,
    ),
    Decoder(
        "controller.apiserver.sessions.frames.exit_code_of",
        lambda data: exit_code_of(Frame(Stream.EXIT, data)),
        (exit_frame(137).payload,),
        refuses=(InvalidError,),
        write=lambda code: exit_frame(code).payload,
    ),
    Decoder(
        "controller.apiserver.sessions.frames.resize_of",
        lambda data: resize_of(Frame(Stream.RESIZE, data)),
        (resize_frame(TerminalSize(rows=24, columns=80)).payload,),
        refuses=(InvalidError,),
        write=lambda size: resize_frame(size).payload,
    ),
    Decoder(
        "controller.apps.up.supervision.lines.LineSplitter.feed",
        lambda data: LineSplitter().feed(data),
        (b"a\nb",),
        (),
        may_be_cut=True,
    ),
    Decoder(
        "controller.workloads.nodes.guard.lease_file.decode",
        lease_file.decode,
        (lease_file.encode(17, "boot", ("/a", "/b")),),
        refuses=(lease_file.LeaseFileError,),
        write=lambda lease: lease_file.encode(*lease),
    ),
    Decoder(
        "controller.workloads.centres.engines.containers.engine.files_in",
        lambda data: files_in(data, 1 << 20),
        (_parcel(b'{"out": "YQ=="}'),),
        refuses=(EngineError,),
        harmful=(_parcel(DEEP), _parcel(b'{"\\ud800": ""}'), _parcel(bytes(1 << 24))),
    ),
    _json(
        "controller.workloads.centres.engines.jobs.keeping.read_record",
        _of_a_file(lambda path: read_record(path, Ended)),
        ValueError,
        msgspec.json.encode(_ENDED),
        harmful=(b'{"reason": "\xff"}',),
    ),
    _json(
        "controller.workloads.centres.engines.slurm.answers.nodes_in",
        lambda data: [(node, node.works, node.why_not) for node in nodes_in(data)],
        EngineError,
        json.dumps(_NODES).encode(),
    ),
    _json(
        "controller.workloads.centres.engines.slurm.answers.jobs_in",
        lambda data: [(job, job.phase, job.code, job.why, job.token) for job in jobs_in(data)],
        EngineError,
        json.dumps(_JOBS).encode(),
        harmful=(json.dumps({"jobs": [{"job_id": 7, "job_state": "x", "comment": DEEP_KEY.decode()}]}).encode(),),
    ),
    _extender(read_arguments, "filter-nodes.json", "prioritize-names.json"),
    _extender(read_preemption, "preempt-names.json", "preempt-nodes.json"),
    _extender(read_binding, "bind.json"),
    _alto(NetworkFilter, pids=["a"], address_types=["ipv4"]),
    _alto(
        EndpointCostRequest,
        cost_type={"cost-mode": "numerical", "cost-metric": "delay-ow"},
        endpoints={"srcs": ["ipv4:10.0.0.1"], "dsts": ["ipv4:10.0.0.2"]},
    ),
    _alto(PropertyRequest, properties=["pid"], endpoints=["ipv4:10.0.0.1"]),
    Decoder(
        "controller.probing.running.results.decode",
        results.decode,
        (msgspec.json.encode(_RESULT),),
        refuses=(ProbeError,),
        write=msgspec.json.encode,
    ),
    _json("controller.probing.running.reading.decode", reading.decode, ProbeError, _PROBE),
    Decoder(
        "controller.learning.agent.records.experience_from_bytes",
        lambda data: records.experience_to_bytes(records.experience_from_bytes(data)),
        (_lived(),),
        refuses=(LearningError,),
        write=lambda data: data,
    ),
    Decoder(
        "controller.learning.agent.records.experiences_from_bytes",
        _experiences_again,
        (records.experiences_to_bytes([_lived(), _lived()]),),
        refuses=(LearningError,),
        write=lambda data: data,
    ),
    _json(
        "controller.learning.agent.records.generator_from_bytes",
        records.generator_from_bytes,
        LearningError,
        records.generator_to_bytes(np.random.Generator(np.random.PCG64(5))),
    ),
    Decoder(
        "controller.learning.agent.records.checkpoint_from_bytes",
        lambda data: records.checkpoint_from_bytes(data, "x"),
        (records.checkpoint_to_bytes(new_checkpoint(_SMALL, _seen(), "nodes")),),
        refuses=(LearningError,),
        harmful=(_checkpoint(b"\x81\xa1\xff\xc0"), _checkpoint(b"\x81\xa1x" + b"\x91" * 4_000)),
        write=records.checkpoint_to_bytes,
    ),
)
"""All of them."""
