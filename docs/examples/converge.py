"""From the first weights to the converged model: a main server and three workers, without anybody counting steps.

The main server distributes the weights and a learning rate: the switch copies each of its packets to all workers. They
train until their mean loss is low enough, which all of them see at the same step, and deliver the model. The switch
runs fabric_aggregation in machine code; only the cables are in memory, so that no root is needed.

    python docs/examples/converge.py

prints

    compiling the switch's program, which takes some seconds the first time
    3 workers have converged at the same step: mean loss below 0.0001 for 3 steps
    the main server's model is off by less than 0.05: True
"""

from __future__ import annotations

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
from dataplane.allreduce.jobs.convergence import Convergence, ConvergenceTest
from dataplane.allreduce.next_hop import NextHop
from dataplane.allreduce.transfers import deliver, distribute, flattened, receive, take
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
{millrace: 1, name: star, switches: [{name: s1}],
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s1}, {name: c1, switch: s1}]}
"""
SERVER, UDP_PORT, TRUE = "c1", 20_000, np.arange(20, dtype=np.float32) / 10
END = Convergence("loss", below=1e-4, steps=3)


def place_job(topology: Topology, switch: NativeSwitch) -> RunningJob:
    """Fill the switch's tables and give it a job of the workers and their main server."""
    schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
    sessions = {"s1": InProcessSession("s1", switch.device_id, P4RuntimeCore(switch), schema)}
    clock, delays, settings = MonotonicClock(), WriteDelays(write_delay_ns=0), AggregationSettings()
    controller = VirtualController(
        topology, sessions, clock, lambda _, call: call(), watches=(), delays=delays, aggregation=settings
    )
    controller.start()
    workers = [Worker(host.name, UDP_PORT) for host in topology.hosts if host.name != SERVER]
    now, server = nominal_snapshot(topology, clock.now_ns()), Worker(SERVER, UDP_PORT)
    return controller.create_job(workers, now, window=64, capacity=len(workers), server=server)


def make_engine(topology: Topology, job: RunningJob, host: str, cable: NicPort) -> Engine:
    """Return a packet engine at the far end of a host's cable."""
    node, placed, switch = topology.host[host], job.placed.job, str(switch_ipv4(topology.switch["s1"].node_id))
    transport = RingTransport(cable, NextHop(host, node.ipv4, node.mac, gateway_mac(topology, host)), UDP_PORT)
    settings = EngineSettings(switch, placed.number, placed.window, placed.capacity, job.members.epoch, placed.nonce)
    return Engine(settings, transport)


def serve(engine: Engine) -> NDArray[np.float32]:
    """Hand out the first weights and the learning rate; return the converged model."""
    for value in (np.zeros_like(TRUE), b"0.05"):
        distribute(engine, flattened(value))
    return take(engine, 1).view(np.float32)


def train(engine: Engine, seed: int) -> int:
    """Fit a line to the data of one worker and those of the others; return the steps until it has converged."""
    weights = receive(engine).view(np.float32).copy()
    rate = float(receive(engine).tobytes())
    chance, test, steps = np.random.default_rng(seed), ConvergenceTest(END), 0
    while True:
        steps += 1
        inputs = chance.normal(size=(64, TRUE.size)).astype(np.float32)
        wrong = inputs @ (weights - TRUE)
        values = np.append(2 * inputs.T @ wrong / wrong.size, np.mean(wrong**2)).astype(np.float32)
        engine.all_reduce(values, values, mean=True)
        weights -= rate * values[:-1]
        if test.note(float(values[-1])):
            deliver(engine, flattened(weights), [seed == 0])
            return steps


def main() -> None:
    """Train until the workers have converged, and compare the main server's model with the true one."""
    print("compiling the switch's program, which takes some seconds the first time", flush=True)
    topology = loads(STAR)
    ports = {host: edge.port for host, edge in topology.attachment.items()}
    cables = {host: memory_pair((f"s1.{port}", host)) for host, port in ports.items()}
    near = {ports[host]: cable[0] for host, cable in cables.items()}
    with ExitStack() as stack:
        switch = stack.enter_context(NativeSwitch(1, [PortSettings(port) for port in near], near))
        job = place_job(topology, switch)
        engines = {host: stack.enter_context(make_engine(topology, job, host, cables[host][1])) for host in ports}
        server, workers = engines.pop(SERVER), list(engines.values())
        with ThreadPoolExecutor(4) as threads:
            serving = threads.submit(serve, server)
            steps = set(threads.map(train, workers, range(len(workers))))
            model = serving.result()
    print(f"{len(workers)} workers have converged at {'the same step' if len(steps) == 1 else steps}: {END}")
    print(f"the main server's model is off by less than 0.05: {bool(np.abs(model - TRUE).max() < 0.05)}")


if __name__ == "__main__":
    main()
