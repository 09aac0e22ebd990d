"""Host agent of the kernel fabric: sends its flows through UDP sockets and logs every probe that arrives.

Runs as a process in the host's namespace: `python -m dataplane.fabric.agent PLAN`. It opens its sockets, prints `ready`
to standard output, and reads the start time of the run from standard input: no agent sends before all can receive
(`dataplane.fabric.kernel.agents` is the other end). The log is a file of fixed-size records, so the measuring code
(`dataplane.fabric.hosts.Receiver`) is the same as in virtual time.

It is not part of the package `kernel` because a fabric starts many agents, and importing that package takes a second of
CPU time.
"""

from __future__ import annotations

import random
import selectors
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO, Final, TextIO

import msgspec

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.config import Strict, load
from dataplane.errors import FabricError, MillraceError
from dataplane.fabric.hosts import Arrivals, Flow, Probe, Receiver, Sender, decode_probe
from dataplane.fabric.load import LATE_NS, SentLoad
from dataplane.malformed import MALFORMED

READY: Final = "ready"
"""Line that an agent prints once its sockets are open."""

_RECORD: Final = struct.Struct("!IQQQIB")
RECORD_BYTES: Final = _RECORD.size
"""Size of an arrival in a log."""
_HOP_LIMIT: Final = struct.Struct("@i")
_IP_RECVTTL: Final = 12
"""From linux/in.h; Python defines it from 3.14 on."""
_MAX_WAIT_S: Final = 0.2
_BURST: Final = 64
_RECEIVE_BUFFER_BYTES: Final = 1 << 20
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(4)


class AgentFlow(Strict, frozen=True):
    """A flow in a plan file: the fields of `dataplane.fabric.hosts.Flow` that a socket needs."""

    flow_id: int
    src: str
    dst: str
    rate_bps: int
    frame_bytes: int
    src_port: int
    dst_port: int
    poisson: bool
    start_ns: int
    stop_ns: int


class AgentPlan(Strict, frozen=True):
    """Plan of one host; times count from the start that the agent is given once it is ready."""

    end_ns: int
    """Run time at which the agent stops."""
    seed: int
    """Seed of the Poisson arrivals."""
    log: str
    """File that the arrivals are written to."""
    load: str
    """File that receives the load sent per flow at the end: JSON, keyed by flow number."""
    skip_after_ns: int = 100_000_000
    """Packets later than this are skipped and counted: sending them at once would be an unplanned burst."""
    send: tuple[AgentFlow, ...] = ()
    receive_ports: tuple[int, ...] = ()
    address: str = "0.0.0.0"  # noqa: S104 - the namespace holds one interface


@dataclass(frozen=True, slots=True)
class Arrival:
    """One log record: a probe, its arrival time (ns of run time), the frame's size and its remaining hops.

    `hop_limit` is 0 if the kernel did not report it.
    """

    probe: Probe
    arrived_ns: int
    frame_bytes: int
    hop_limit: int = 0


def plan_flow(flow: Flow) -> AgentFlow:
    """Convert a flow to its form in a plan file; raise FabricError for a flow without an end."""
    if flow.stop_ns is None:
        raise FabricError(f"flow {flow.flow_id} has no end; an agent's flows have one")
    return AgentFlow(
        flow_id=flow.flow_id,
        src=str(flow.src),
        dst=str(flow.dst),
        rate_bps=flow.rate_bps,
        frame_bytes=flow.frame_bytes,
        src_port=flow.src_port,
        dst_port=flow.dst_port,
        poisson=flow.arrivals is Arrivals.POISSON,
        start_ns=flow.start_ns,
        stop_ns=flow.stop_ns,
    )


def read_log(path: Path) -> Iterator[Arrival]:
    """Yield the arrivals in a log in time order; raise FabricError if it is truncated or missing."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FabricError(f"{path}: {error.strerror}") from error
    if len(data) % _RECORD.size:
        raise FabricError(f"{path}: ends in the middle of a record")
    for flow_id, sequence, sent_ns, arrived_ns, frame_bytes, hop_limit in _RECORD.iter_unpack(data):
        yield Arrival(Probe(flow_id, sequence, sent_ns), arrived_ns, frame_bytes, hop_limit)


def replay(path: Path) -> Receiver:
    """Return a receiver that has seen everything in a log."""
    receiver = Receiver()
    for arrival in read_log(path):
        receiver.receive_payload(arrival.probe.encode(), arrival.frame_bytes, arrival.arrived_ns)
    return receiver


@dataclass(slots=True)
class _Sending:
    """An outgoing flow with its own socket."""

    sender: Sender
    socket: socket.socket
    late: int = 0
    refused: int = 0
    worst_late_ns: int = 0

    def load(self) -> SentLoad:
        return SentLoad(
            planned=self.sender.sent_frames + self.sender.skipped_frames,
            sent=self.sender.sent_frames - self.refused,
            late=self.late,
            skipped=self.sender.skipped_frames,
            refused=self.refused,
            worst_late_ns=self.worst_late_ns,
        )


class Agent:
    """Sends and logs from a start time to the plan's end; can receive as soon as it is constructed."""

    def __init__(self, plan: AgentPlan, clock: Clock, log: BinaryIO) -> None:
        self._plan, self._clock, self._log = plan, clock, log
        self._origin_ns = 0
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._sending = [self._sender(flow) for flow in plan.send]
        for port in plan.receive_ports:
            opened = self._open(port)
            if opened.family == socket.AF_INET6:
                opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            else:
                opened.setsockopt(socket.IPPROTO_IP, _IP_RECVTTL, 1)
            self._selector.register(opened, selectors.EVENT_READ)

    def run(self, origin_ns: int) -> None:
        """Send and receive until the plan's end; run time is zero at `origin_ns` of the clock."""
        self._origin_ns = origin_ns
        while (now_ns := self._now_ns()) < self._plan.end_ns:
            due_ns = self._send_due(now_ns)
            wait_s = min(max(0.0, (due_ns - self._now_ns()) / NS_PER_S), _MAX_WAIT_S)
            for key, _ in self._selector.select(wait_s):
                self._receive(key.fileobj)  # type: ignore[arg-type]  # only sockets are registered

    def load(self) -> dict[int, SentLoad]:
        """Return the load sent per flow, by flow number; packets due after the end are not planned."""
        return {sending.sender.flow.flow_id: sending.load() for sending in self._sending}

    def skip_the_rest(self) -> None:
        """Count the packets that remain in the plan as skipped: the end came first."""
        for sending in self._sending:
            while sending.sender.next_send_ns() is not None:
                sending.sender.skip()

    def close(self) -> None:
        """Close every socket."""
        self._selector.close()
        for opened in self._sockets:
            opened.close()

    def _now_ns(self) -> int:
        return self._clock.now_ns() - self._origin_ns

    def _open(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._plan.address else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        self._sockets.append(opened)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        opened.bind((self._plan.address, port))
        return opened

    def _sender(self, planned: AgentFlow) -> _Sending:
        flow = Flow(
            planned.flow_id,
            0,
            0,
            ip_address(planned.src),
            ip_address(planned.dst),
            planned.rate_bps,
            frame_bytes=planned.frame_bytes,
            src_port=planned.src_port,
            dst_port=planned.dst_port,
            arrivals=Arrivals.POISSON if planned.poisson else Arrivals.CONSTANT,
            start_ns=planned.start_ns,
            stop_ns=planned.stop_ns,
        )
        opened = self._open(planned.src_port)
        opened.connect((planned.dst, planned.dst_port))
        return _Sending(Sender(flow, random.Random(f"{self._plan.seed}/{planned.flow_id}")), opened)

    def _send_due(self, now_ns: int) -> int:
        """Send the packets that are due, at most one burst per flow; return when the next is due, or the plan's end."""
        next_ns = self._plan.end_ns
        for sending in self._sending:
            for _ in range(_BURST):
                due_ns = sending.sender.next_send_ns()
                if due_ns is None or due_ns > now_ns:
                    break
                self._send(sending, now_ns - due_ns)
            if due_ns is not None:
                next_ns = min(next_ns, due_ns)
        return next_ns

    def _send(self, sending: _Sending, late_ns: int) -> None:
        sending.worst_late_ns = max(sending.worst_late_ns, late_ns)
        if late_ns > self._plan.skip_after_ns:
            sending.sender.skip()
            return
        try:
            sending.socket.send(sending.sender.payload(self._now_ns()))
        except OSError:
            # Full socket buffer or ICMP answer: the packet counts as lost, and its sequence number shows the loss.
            sending.refused += 1
        else:
            sending.late += late_ns > LATE_NS

    def _receive(self, opened: socket.socket) -> None:
        for _ in range(_BURST):
            try:
                payload, ancillary, _, _ = opened.recvmsg(1 << 16, _ANCILLARY_BYTES)
            except BlockingIOError:
                return
            probe = decode_probe(payload)
            if probe is not None:
                measured = self._now_ns(), len(payload) + self._overhead, _hop_limit(ancillary)
                self._log.write(_RECORD.pack(probe.flow_id, probe.sequence, probe.sent_ns, *measured))

    @property
    def _overhead(self) -> int:
        return 62 if ":" in self._plan.address else 42


def _hop_limit(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return a packet's remaining hops from the ancillary data; 0 if the kernel did not report them."""
    for level, kind, data in ancillary:
        is_it = (level, kind) in {(socket.IPPROTO_IP, socket.IP_TTL), (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)}
        if is_it and len(data) >= _HOP_LIMIT.size:
            return int(_HOP_LIMIT.unpack_from(data)[0]) & 0xFF
    return 0


def read_load(path: Path) -> dict[int, SentLoad]:
    """Return the load an agent sent per flow, by flow number; raise FabricError if it left no record."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[int, SentLoad])
    except OSError as error:
        raise FabricError(f"{path}: {error.strerror}") from error
    except MALFORMED as error:
        raise FabricError(f"{path}: {error}") from error


def main(argv: list[str]) -> int:
    """Run the plan in the file that `argv` names; on failure print one line on stderr and return status 1."""
    try:
        plan = load(Path(argv[0]), AgentPlan)
        with Path(plan.log).open("wb") as log:
            agent = Agent(plan, MonotonicClock(), log)
            try:
                print(READY, flush=True)  # noqa: T201 - the other end waits for it
                agent.run(_read_start(sys.stdin))
            finally:
                agent.close()
        agent.skip_the_rest()
        Path(plan.load).write_bytes(msgspec.json.encode(agent.load()))
    except (MillraceError, OSError) as error:
        print(f"millrace agent: {error}", file=sys.stderr)  # noqa: T201 - the process's own voice
        return 1
    return 0


def _read_start(lines: TextIO) -> int:
    """Return the start time of the run, on the machine's monotonic clock."""
    line = lines.readline().strip()
    if not line.isdecimal():
        raise FabricError(f"{line!r} is not the time of a start" if line else "got no start time")
    return int(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
