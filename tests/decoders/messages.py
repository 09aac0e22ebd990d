"""Decoders of messages between processes: protobuf and JSON, with what must hold beyond their schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

from google.protobuf.message import Message

from collectors.collector import Collector
from collectors.events.changes import RuleChange, RuleState
from collectors.events.rules import Rule
from collectors.feed import events_pb2, feed_pb2, links_pb2, records_pb2
from collectors.feed.events import (
    event_message,
    event_of,
    events_message,
    events_of,
    rules_message,
    rules_of,
    state_message,
    state_of,
)
from collectors.feed.records import drops_message, drops_of, records_message, records_of
from collectors.feed.snapshots import notes_message, notes_of, snapshot_message, snapshot_of, status_message, status_of
from collectors.feed.statuses import moves_message, moves_of, statuses_message, statuses_of
from collectors.feed.windows import windows_pb2
from collectors.feed.windows.windows import windows_message, windows_of
from collectors.settings import CollectorSettings, Core
from collectors.values import (
    CollectorStatus,
    DropRecord,
    Event,
    EventNote,
    Evidence,
    FlowKey,
    FlowMove,
    HopRecord,
    JobNote,
    LinkCondition,
    LinkStatus,
    Phase,
)
from controller.common.errors import JobError, PathError
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.records import PlaceRecords
from controller.network.aggregation.service.seats import JobSeats, Seat, SeatRecords
from controller.network.aggregation.storage import FileStorage
from controller.network.intents import AggregationJob, AggregationTree, FlowSpec, Leaf, Members, Worker
from controller.network.paths.records.codec import freeze, thaw
from controller.network.tables.aggregation import Block, PlacedJob
from dataplane.allreduce.jobs import jobs_pb2
from dataplane.allreduce.jobs.codec import DOWNWARD, decode_downward, encode, upward_of
from dataplane.allreduce.jobs.messages import Admitted, Arrived, Barrier, Ended, Hello, Refused, View, Waiting
from dataplane.balance import messages as balance
from dataplane.clock import VirtualClock
from dataplane.database import IN_MEMORY
from dataplane.errors import AllReduceError, FabricError
from dataplane.fabric.live.values import FabricCounters
from dataplane.nic.managed import messages as managed
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import parse, parse_request
from dataplane.switch.p4runtime import bytestrings
from dataplane.switch.p4runtime.errors import P4RuntimeError
from dataplane.topology.values import LinkKey
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.decoders.decoding import Decoder

_FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 5000, 6001)
_HELLO = Hello("resnet", "h1", "0123456789abcdef", 4, 19778, 60_000_000_000, 64, 256, True, None, ("h9", 19779))
_ADMITTED = Admitted(
    30, "10.200.0.1", 64, 256, 7, 0, 0, ("h1", "h2"), 500_000_000, 5_000_000_000, "h1", ("h2",), 1 << 63, 2
)
_VIEW = View(
    30, "10.200.0.1", "10.200.0.1", 8, ("h1", "h2"), Barrier(3, 2052, 5_000_000_000), ("h2",), None, 1 << 63, 2
)


_RUNNING_JOB = RunningJob(
    PlacedJob(
        AggregationJob(7, (Worker("h1", 20_000), Worker("h2", 20_001)), 2, 64, None, 2**63),
        AggregationTree("spine1", ("h1", Leaf("leaf1", ("h2",)))),
        {"spine1": Block(0, 128), "leaf1": Block(128, 128)},
    ),
    Members(3, frozenset({"h1"})),
)
_HOP = HopRecord(7, _FLOW, 13, 5, 0, 3, 11, 1, 2, 2_000, 0, 3, 100, 2_100, 1_000)
_DROP = DropRecord(7, 13, 5, 13, 1, 2, 0, 9, _FLOW)
_RULE = Rule(name="slow", figure="delay_p99_ns", above=1e6)
_CHANGE = RuleChange("slow", _RULE, None, "ada", 7)
_MOVE = FlowMove(7, "h1", "h2", 17, 1, 2, ("s1",), ("s2",), "full", 9)
_EVENT = Event(7, "slow", LinkKey("s1", "s2"), "delay_p99_ns", 2e6, 1e6, Phase.RAISED, (Evidence(6, "loss", 0.5),))


def _collector() -> Collector:
    """Return a collector that knows a path of three switches."""
    collector = Collector(build_topology(), VirtualClock(1_000_000), CollectorSettings(core=Core.REFERENCE))
    for at_ns in range(0, 50_000, 10_000):
        collector.receive(Reporter().stacked(long_way(at_ns, queue=3), sequence=at_ns // 10_000))
    return collector


def _feed(read: Callable[[Any], Any], schema: type[Message], *messages: Message) -> Decoder:
    """Return a decoder of the collector's feed."""
    return Decoder(
        f"{read.__module__}.{read.__name__}",
        lambda data: read(parse(schema, data)),
        tuple(message.SerializeToString() for message in messages),
        refuses=(MessageError,),
        may_be_cut=True,
    )


def _of_a_unit(message: balance.Hello | balance.Welcome | balance.Order | balance.State) -> Decoder:
    """Return the decoder of a message between a program and the loop of its unit."""
    kind = type(message)
    return Decoder(
        "dataplane.balance.messages.decode",
        lambda data: balance.decode(data, kind),
        (balance.encode(message),),
        refuses=(ValueError,),
        write=balance.encode,
    )


_QUEUE = managed.QueueState(
    device="eth0",
    index=2,
    queue=0,
    kind="xdp",
    thread=77,
    mode="hybrid",
    modes=("waiting", "hybrid"),
    received=5,
    polls=9,
)
_OF_POLLERS: tuple[managed.FromProcess, ...] = (
    managed.Hello("switch 5"),
    managed.Report((_QUEUE,), 1),
    managed.Outcome(3, (_QUEUE,)),
    managed.Claim(4, "eth0", 2, "resnet"),
)
_OF_MANAGERS: tuple[managed.FromManager, ...] = (
    managed.Welcome("h1", 1.0, True),
    managed.Order(3, "eth0", None, "polling"),
    managed.Grant(4, "xdp", (0, 1)),
)
_OFFER = balance.Hello("u0", ("bf16", "fp32"), "fp32", 1, 4, 2)
_STATE = balance.State(number=3, precision="bf16", concurrency=2, now_ns=9, moving_ns=4, computing_ns=7)


MESSAGES = (
    Decoder(
        "dataplane.nic.managed.messages.decode_from_process",
        managed.decode_from_process,
        tuple(map(managed.encode, _OF_POLLERS)),
        refuses=(ValueError,),
        write=managed.encode,
    ),
    Decoder(
        "dataplane.nic.managed.messages.decode_from_manager",
        managed.decode_from_manager,
        tuple(map(managed.encode, _OF_MANAGERS)),
        refuses=(ValueError,),
        write=managed.encode,
    ),
    *(_of_a_unit(message) for message in (_OFFER, balance.Welcome(60.0), balance.Order(1, "int8", 3), _STATE)),
    Decoder(
        "dataplane.allreduce.jobs.codec.upward_of",
        lambda data: upward_of(parse_request(jobs_pb2.WorkerMessage, data)),
        (encode(_HELLO), encode(Arrived(3, 2052))),
        refuses=(MessageError,),
        write=encode,
    ),
    Decoder(
        "dataplane.allreduce.jobs.codec.decode_downward",
        decode_downward,
        tuple(
            DOWNWARD.message(message).SerializeToString()
            for message in (_ADMITTED, _VIEW, Waiting(("h1",), 4), Refused("no"), Ended("left", False))
        ),
        refuses=(AllReduceError,),
        write=lambda message: DOWNWARD.message(message).SerializeToString(),
    ),
    _feed(snapshot_of, feed_pb2.Snapshot, snapshot_message(_collector().snapshot())),
    _feed(windows_of, windows_pb2.LinkWindows, windows_message(_collector().link_places, _collector().link_windows())),
    _feed(status_of, feed_pb2.CollectorStatus, status_message(CollectorStatus(7, {"reports": 3}, "none"))),
    _feed(notes_of, feed_pb2.JobNotes, notes_message({30: JobNote("resnet", 7, 256)})),
    _feed(
        statuses_of,
        links_pb2.LinkStatuses,
        statuses_message({LinkKey("s1", "s2"): LinkStatus(LinkCondition.DOWN, 7, "port 2 is down")}),
    ),
    _feed(records_of, records_pb2.HopRecords, records_message([_HOP, _HOP])),
    _feed(drops_of, records_pb2.DropRecords, drops_message([_DROP])),
    _feed(events_of, events_pb2.Events, events_message([_EVENT])),
    _feed(event_of, events_pb2.Event, event_message(replace(_EVENT, note=EventNote("ada", "on it", 7)))),
    _feed(rules_of, events_pb2.RuleSet, rules_message([_RULE])),
    _feed(
        state_of, events_pb2.RuleSet, state_message(RuleState((_RULE,), (RuleChange("slow", _RULE, None, "ada", 7),)))
    ),
    _feed(
        moves_of, feed_pb2.FlowMoves, moves_message([FlowMove(7, "h1", "h2", 17, 1, 2, ("s1",), ("s2",), "full", 9)])
    ),
    Decoder(
        "controller.network.paths.records.codec.thaw",
        lambda data: thaw(data, FlowSpec),
        (freeze(FlowSpec("h1", "h2", 17, 5000, 6001)),),
        refuses=(PathError,),
    ),
    Decoder(
        "controller.network.aggregation.records.PlaceRecords.read",
        lambda data: PlaceRecords(FileStorage(IN_MEMORY)).read({"placed/7": data}),
        (freeze(_RUNNING_JOB),),
        refuses=(JobError,),
    ),
    Decoder(
        "controller.network.aggregation.service.seats.SeatRecords.read",
        lambda data: SeatRecords(FileStorage(IN_MEMORY)).read({"seats/7": data}),
        (freeze(JobSeats(7, _HELLO, 64, 2, 2, (Seat(_HELLO),), removed=(("t", Ended("it was silent")),))),),
        refuses=(JobError,),
    ),
    Decoder(
        "dataplane.fabric.live.values.FabricCounters.decode",
        FabricCounters.decode,
        (FabricCounters(7, 1_000, 3).encode(),),
        refuses=(FabricError,),
        write=FabricCounters.encode,
    ),
    Decoder(
        "dataplane.switch.p4runtime.bytestrings.decode",
        lambda data: bytestrings.decode(data, 20, "a field"),
        (bytes.fromhex("0f4240"),),
        refuses=(P4RuntimeError,),
        may_be_cut=True,
    ),
)
"""All of them."""
