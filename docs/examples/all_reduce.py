"""In-network aggregation with numpy: four workers' vectors are added up inside the switch, packet by packet.

Each worker has a packet engine of its own, as in a training, and the switch runs fabric_aggregation in machine code;
only the cables between them are in memory, so that no root is needed. A controller places the job: which cells of the
switch it gets, whose packets count, to whom the sums go.

    python docs/examples/all_reduce.py

prints

    compiling the switch's program, which takes some seconds the first time
    4 workers added up 100000 values; the same bits at all of them: True
    largest difference from numpy's sum: 5e-07
    each received 1.04 times its vector, and would have 1.50 times around a ring

Between machines `Membership.join` meets the others by the job's name and brings the settings, and under PyTorch one
line moves DistributedDataParallel's gradients there (docs/training/allreduce.md, docs/training/jobs.md).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from collectors.state.nominal import nominal_snapshot
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.settings import AggregationSettings
from controller.network.intents import Worker
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.kernels.layouts import PACKET_BYTES
from dataplane.allreduce.next_hop import NextHop
from dataplane.allreduce.transports import RingTransport
from dataplane.clock import MonotonicClock
from dataplane.nic import NicPort, memory_pair
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.p4runtime import P4RuntimeCore
from dataplane.switch.traffic import PortSettings
from dataplane.topology.addressing import gateway_mac, switch_ipv4
from dataplane.topology.file import loads
from dataplane.topology.values import Topology

STAR = """
millrace: 1
name: star
defaults: {access: {rate: 10 Gbit/s, delay: 0 us}}
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s1}, {name: h4, switch: s1}]
"""
UDP_PORT = 20_000
VALUES = 100_000
Floats = NDArray[np.float32]


def at_once(_time_ns: int, call: Callable[[], None]) -> None:
    """Do what a controller wants to do later: here nothing takes time."""
    call()


def place_job(topology: Topology, switch: NativeSwitch) -> RunningJob:
    """Fill the switch's tables and give it a job of all hosts."""
    schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
    sessions = {"s1": InProcessSession("s1", switch.device_id, P4RuntimeCore(switch), schema)}
    clock, delays, settings = MonotonicClock(), WriteDelays(write_delay_ns=0), AggregationSettings()
    controller = VirtualController(topology, sessions, clock, at_once, watches=(), delays=delays, aggregation=settings)
    controller.start()
    workers = [Worker(host.name, UDP_PORT) for host in topology.hosts]
    state = nominal_snapshot(topology, clock.now_ns())  # what decides between switches, if there are several
    return controller.create_job(workers, state, window=64, capacity=len(workers))


def make_engine(topology: Topology, job: RunningJob, host: str, cable: NicPort) -> Engine:
    """Return a worker's packet engine at the far end of its cable."""
    node = topology.host[host]
    transport = RingTransport(cable, NextHop(host, node.ipv4, node.mac, gateway_mac(topology, host)), UDP_PORT)
    placed = job.placed.job
    switch = str(switch_ipv4(topology.switch[job.placed.tree.root].node_id))
    settings = EngineSettings(
        switch,
        placed.number,
        placed.window,
        placed.capacity,
        job.members.epoch,
        nonce=placed.nonce,
        contributors=len(job.members.workers),
    )
    return Engine(settings, transport)


def main() -> None:
    """Add up random vectors, and compare with numpy's own sum."""
    print("compiling the switch's program, which takes some seconds the first time", flush=True)
    topology = loads(STAR)
    ports = {host.name: topology.attachment[host.name].port for host in topology.hosts}
    cables = {host: memory_pair((f"s1.{port}", host)) for host, port in ports.items()}
    near = {ports[host]: cable[0] for host, cable in cables.items()}
    vectors = list(np.random.default_rng(1).normal(size=(len(ports), VALUES)).astype(np.float32))
    sums = [np.empty(VALUES, np.float32) for _ in ports]
    with ExitStack() as stack:
        switch = stack.enter_context(NativeSwitch(1, [PortSettings(port) for port in near], near))
        job = place_job(topology, switch)
        engines = [stack.enter_context(make_engine(topology, job, host, cables[host][1])) for host in ports]
        with ThreadPoolExecutor(len(engines)) as threads:
            list(threads.map(Engine.all_reduce, engines, vectors, sums))
        results = engines[0].statistics.results
    same = all(np.array_equal(sums[0], mine) for mine in sums)
    print(f"{len(engines)} workers added up {VALUES} values; the same bits at all of them: {same}")
    print(f"largest difference from numpy's sum: {np.abs(sums[0] - np.sum(vectors, axis=0)).max():.0e}")
    share = results * PACKET_BYTES / vectors[0].nbytes
    print(f"each received {share:.2f} times its vector, and would have 1.50 times around a ring")


if __name__ == "__main__":
    main()
