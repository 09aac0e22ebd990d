"""Hosts of a virtual fabric that reduce vectors through its switches, and the controller that lets them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address

from finsy.proto import p4r

from collectors.reference.builder import PlainStateBuilder
from controller.network.aggregation.jobs import Jobs
from controller.network.aggregation.settings import AggregationSettings
from controller.network.intents import AggregationTree, Worker
from controller.network.p4runtime.session import ELECTION_ID
from controller.network.tables.aggregation import parent_of
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.allreduce.formats import Floats
from dataplane.allreduce.reference import worker as reference
from dataplane.errors import WireError
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory
from dataplane.topology.addressing import gateway_mac, switch_ipv4
from dataplane.topology.values import Topology
from dataplane.wire import aggregation
from dataplane.wire.aggregation import UDP_PORT, Aggregation, Flags
from dataplane.wire.packet import udp_frame

US = 1_000
MS = 1_000_000
FIRST_PORT = 20_000
"""UDP port of a job's first worker."""
_PAYLOAD = 42


class World:
    """A fabric whose switches add up; jobs come, change and go at once, regardless of packets in flight."""

    def __init__(
        self, topology: Topology, *, pipeline_factory: PipelineFactory = compiled_pipeline, report_every: int = 0
    ) -> None:
        self.topology = topology
        self.fabric = VirtualFabric(topology, pipeline_factory=pipeline_factory)
        self._state = PlainStateBuilder(topology, self.fabric.clock)
        delays, aggregation = WriteDelays(write_delay_ns=0), AggregationSettings(report_every=report_every)
        self.controller = VirtualController.over(self.fabric, delays=delays, aggregation=aggregation)
        self.controller.start()

    @property
    def jobs(self) -> Jobs:
        """Return the jobs that there are."""
        return self.controller.jobs

    def start(
        self, hosts: Iterable[str], *, window: int = 8, capacity: int | None = None, server: str | None = None
    ) -> int:
        """Place a job over hosts and have it in the switches; return its number."""
        workers = [Worker(host, FIRST_PORT + index) for index, host in enumerate(hosts)]
        main = None if server is None else Worker(server, 30_000)
        most = len(workers) if capacity is None else capacity
        state = self._state.snapshot()
        return self.controller.create_job(workers, state, window=window, capacity=most, server=main).number

    def leave(self, job: int, host: str, *, gap_ns: int = 0, root_first: bool = True) -> None:
        """Do without a worker from the next epoch on, which reaches one switch after the other, so far apart."""
        self.jobs.leave(job, host)
        self.controller.sync_jobs(gap_ns, reverse=root_first)  # leaf1, ..., spine1, ...

    def join(self, job: int, host: str) -> None:
        """Have a worker more from the next epoch on."""
        self.jobs.join(job, Worker(host, 21_000))
        self.controller.sync_jobs()

    def tree(self, job: int) -> AggregationTree:
        """Return where a job is added up."""
        return self.jobs.job(job).placed.tree

    def run(self, duration_ns: int) -> None:
        """Let time pass."""
        self.fabric.run_until(self.fabric.now_ns + duration_ns)

    def stop(self, job: int) -> None:
        """Take a job from the switches."""
        self.jobs.end(job)
        self.controller.sync_jobs()

    def restart(self, switch: str) -> None:
        """Have a switch forget all that it holds, and be found so."""
        p4runtime = self.fabric.p4runtime(switch)
        device_id = self.topology.switch[switch].node_id
        everything = p4r.GetForwardingPipelineConfigRequest(device_id=device_id)
        commit = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        program = p4runtime.get_pipeline(everything).config
        election_id = p4r.Uint128(low=ELECTION_ID)
        p4runtime.set_pipeline(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=device_id, election_id=election_id, action=commit, config=program
            )
        )
        self.controller.lose(switch)
        self.controller.reconnect(switch)

    def aggregator(self, job: int, host: str) -> IPv4Address:
        """Return where a worker of a job sends to."""
        return switch_ipv4(self.topology.switch[parent_of(self.tree(job), host)].node_id)

    def send(self, host: str, port: int, aggregator: IPv4Address, packet: Aggregation) -> None:
        """Send a packet of a job from a host."""
        node = self.topology.host[host]
        frame = udp_frame(
            src_mac=node.mac,
            dst_mac=gateway_mac(self.topology, host),
            src=node.ipv4,
            dst=aggregator,
            src_port=port,
            dst_port=UDP_PORT,
            payload=packet.encode(),
        )
        self.fabric.host(host).send(frame[:40] + b"\0\0" + frame[42:])  # no checksum


@dataclass(slots=True)
class Rank:
    """A host that runs a reference worker: it sends allowed items once, and repeats those without a result."""

    world: World
    job: int
    host: str
    chance: random.Random
    loss: float = 0.0
    again_ns: int = 200 * US
    final: bool = False
    alive: bool = True
    sent: int = 0
    done_ns: int = 0
    worker: reference.Worker | None = None
    _known: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.world.fabric.host(self.host).on_frame(self._receive)

    @property
    def port(self) -> int:
        return next(
            worker.udp_port for worker in self.world.jobs.job(self.job).placed.job.workers if worker.host == self.host
        )

    def reduce(self, values: Floats, first_item: int = 0, *, mean: bool = False) -> None:
        """Begin an all-reduce now."""
        running = self.world.jobs.job(self.job)
        job = running.placed.job
        membership = reference.Membership(job.number, job.window, job.capacity, running.members.epoch, job.nonce)
        self.worker = reference.Worker(membership, values, first_item, mean=mean)
        self._known.clear()
        self.done_ns = 0
        self._send_new()
        self._later()

    def _later(self) -> None:
        worker = self.worker
        self.world.fabric.call_after(self.again_ns, lambda: self._again(worker))

    def _again(self, worker: reference.Worker | None) -> None:
        if self.alive and worker is self.worker and worker is not None and not worker.is_done:
            for packet in worker.outstanding():
                self._send(packet)
            self._later()

    def _send_new(self) -> None:
        assert self.worker is not None
        for packet in self.worker.outstanding(self._known):
            self._known.add((packet.item, packet.epoch))
            self._send(packet)

    def _send(self, packet: Aggregation) -> None:
        self.sent += 1
        packet = replace(packet, flags=Flags.FINAL) if self.final else packet
        if self.chance.random() < self.loss:
            return
        self.world.send(self.host, self.port, self.world.aggregator(self.job, self.host), packet)

    def _receive(self, frame: bytes, now_ns: int) -> None:
        worker = self.worker
        if not self.alive or worker is None or self.done_ns or int.from_bytes(frame[36:38], "big") != self.port:
            return
        if self.chance.random() < self.loss:
            return
        try:
            packet = aggregation.decode(frame, _PAYLOAD)
        except WireError:
            return  # as a worker's native code leaves it out
        if packet.job != self.job:
            return
        worker.receive(packet)
        if worker.is_done:
            self.done_ns = now_ns
        else:
            self._send_new()


def ranks(world: World, job: int, *, loss: float = 0.0, seed: int = 1) -> dict[str, Rank]:
    """Return a rank for each worker of a job."""
    return {
        worker.host: Rank(world, job, worker.host, random.Random(f"{seed}/{worker.host}"), loss)
        for worker in world.jobs.job(job).placed.job.workers
    }
