"""A host of the kernel fabric: sends its flows through UDP sockets and logs every probe that arrives.

Runs as a process in the host's namespace: `python -m dataplane.fabric.kernel.agent PLAN`. The log is a file of fixed
records, so that the measuring code (`dataplane.fabric.hosts.Receiver`) is the same as in virtual time.
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
from typing import BinaryIO, Final

from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict, load
from dataplane.errors import FabricError, MillraceError
from dataplane.fabric.hosts import Arrivals, Flow, Probe, Receiver, Sender, decode_probe

_RECORD: Final = struct.Struct("!IQQQI")
_NS_PER_S: Final = 1_000_000_000
_MAX_WAIT_S: Final = 0.2
_BURST: Final = 64
_RECEIVE_BUFFER_BYTES: Final = 1 << 20


class AgentFlow(Strict, frozen=True):
    """A flow in a plan file; the fields of `dataplane.fabric.hosts.Flow` that a socket needs."""

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
    """What one host does; flow times count from `origin_ns` on the machine's monotonic clock."""

    origin_ns: int
    """When the run's time is zero."""
    end_ns: int
    """When the agent stops, in run time."""
    seed: int
    """Seed of the Poisson arrivals."""
    log: str
    """File that the arrivals are written to."""
    send: tuple[AgentFlow, ...] = ()
    receive_ports: tuple[int, ...] = ()
    address: str = "0.0.0.0"  # noqa: S104 - the namespace holds one interface


@dataclass(frozen=True, slots=True)
class Arrival:
    """One line of the log: a probe, when it arrived (ns of run time) and the frame's size."""

    probe: Probe
    arrived_ns: int
    frame_bytes: int


def plan_flow(flow: Flow) -> AgentFlow:
    """Return a flow as a plan file holds it; raise FabricError for a flow without an end."""
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
    """Yield the arrivals in a log, in the order of time; raise FabricError if it is cut off or missing."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FabricError(f"{path}: {error.strerror}") from error
    if len(data) % _RECORD.size:
        raise FabricError(f"{path}: ends in the middle of a record")
    for flow_id, sequence, sent_ns, arrived_ns, frame_bytes in _RECORD.iter_unpack(data):
        yield Arrival(Probe(flow_id, sequence, sent_ns), arrived_ns, frame_bytes)


def replay(path: Path) -> Receiver:
    """Return a receiver that has seen everything in a log."""
    receiver = Receiver()
    for arrival in read_log(path):
        receiver.receive_payload(arrival.probe.encode(), arrival.frame_bytes, arrival.arrived_ns)
    return receiver


class Agent:
    """Sends and logs until the plan's end; `run` returns how many datagrams the kernel refused to take."""

    def __init__(self, plan: AgentPlan, clock: Clock, log: BinaryIO) -> None:
        self._plan, self._clock, self._log = plan, clock, log
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        self._senders = [self._sender(flow) for flow in plan.send]
        for port in plan.receive_ports:
            self._selector.register(self._open(port), selectors.EVENT_READ)
        self.refused = 0

    def run(self) -> int:
        """Send and receive until the plan's end."""
        while (now_ns := self._now_ns()) < self._plan.end_ns:
            due_ns = self._send_due(now_ns)
            wait_s = min(max(0.0, (due_ns - self._now_ns()) / _NS_PER_S), _MAX_WAIT_S)
            for key, _ in self._selector.select(wait_s):
                self._receive(key.fileobj)  # type: ignore[arg-type]  # only sockets are registered
        return self.refused

    def close(self) -> None:
        """Close every socket."""
        self._selector.close()
        for opened in self._sockets:
            opened.close()

    def _now_ns(self) -> int:
        return self._clock.now_ns() - self._plan.origin_ns

    def _open(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._plan.address else socket.AF_INET
        opened = socket.socket(family, socket.SOCK_DGRAM)
        self._sockets.append(opened)
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        opened.bind((self._plan.address, port))
        return opened

    def _sender(self, planned: AgentFlow) -> tuple[Sender, socket.socket]:
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
        return Sender(flow, random.Random(f"{self._plan.seed}/{planned.flow_id}")), opened

    def _send_due(self, now_ns: int) -> int:
        """Send what is due, each flow at most a burst; return when the next packet is, or the plan's end."""
        next_ns = self._plan.end_ns
        for sender, opened in self._senders:
            for _ in range(_BURST):
                due_ns = sender.next_send_ns()
                if due_ns is None or due_ns > now_ns:
                    break
                try:
                    opened.send(sender.payload(self._now_ns()))
                except OSError:
                    # A full socket buffer or an ICMP answer: the network lost it, and the sequence number tells.
                    self.refused += 1
            if due_ns is not None:
                next_ns = min(next_ns, due_ns)
        return next_ns

    def _receive(self, opened: socket.socket) -> None:
        for _ in range(_BURST):
            try:
                payload = opened.recv(1 << 16)
            except BlockingIOError:
                return
            probe = decode_probe(payload)
            if probe is not None:
                record = (probe.flow_id, probe.sequence, probe.sent_ns, self._now_ns(), len(payload) + self._overhead)
                self._log.write(_RECORD.pack(*record))

    @property
    def _overhead(self) -> int:
        return 62 if ":" in self._plan.address else 42


def main(argv: list[str]) -> int:
    """Run the plan in the file that `argv` names; one line on stderr and status 1 if it cannot."""
    try:
        plan = load(Path(argv[0]), AgentPlan)
        with Path(plan.log).open("wb") as log:
            agent = Agent(plan, MonotonicClock(), log)
            try:
                agent.run()
            finally:
                agent.close()
    except (MillraceError, OSError) as error:
        print(f"millrace agent: {error}", file=sys.stderr)  # noqa: T201 - the process's own voice
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
