"""Clusters for tests of schedulers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from controller.cluster.hardware import WHOLE, Cluster, Device, DeviceRequest, DeviceShare, Node, Request, Shares
from dataplane.topology.values import DeviceKind, MediumKind, MemoryMedium

GIB = 1 << 30
MODELS = ("A100", "T4")


def node(name: str, cores: int = 8, gib: int = 32, gpus: Sequence[str] = ()) -> Node:
    """Return a node with GPUs of these models, 16 GiB each."""
    devices = tuple(Device(number, DeviceKind.GPU, model, 16 * GIB) for number, model in enumerate(gpus))
    return Node(name, cores * WHOLE, (MemoryMedium(MediumKind.DRAM, gib * GIB),), devices)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw nodes with some resources held."""
    cluster = Cluster.of(
        node(
            f"n{number}",
            draw(st.integers(1, 8)),
            draw(st.integers(1, 8)),
            draw(st.lists(st.sampled_from(MODELS), max_size=4)),
        )
        for number in range(draw(st.integers(1, 5)))
    )
    for name, hardware in cluster.nodes.items():
        shares = Shares(
            draw(st.integers(0, hardware.cpu_milli)),
            draw(st.integers(0, hardware.memory_bytes)),
            tuple(
                DeviceShare(device.number, draw(st.sampled_from((250, 500, WHOLE))), draw(st.integers(0, 16)) * GIB)
                for device in hardware.devices
                if draw(st.booleans())
            ),
        )
        cluster = cluster.take(name, shares)
    return cluster


device_requests = st.builds(
    lambda any_of, whole, count, milli, models, gib: DeviceRequest(
        None if any_of else DeviceKind.GPU, count if whole else 1, WHOLE if whole else milli, models, gib * GIB, any_of
    ),
    st.sampled_from((frozenset(), frozenset(), frozenset({DeviceKind.GPU, DeviceKind.NPU}))),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from((250, 500, 750)),
    st.frozensets(st.sampled_from(MODELS)),
    st.integers(0, 16),
)
requests = st.builds(
    Request,
    st.integers(0, 8 * WHOLE),
    st.integers(0, 8 * GIB),
    st.lists(device_requests, max_size=2).map(tuple),
)


def many_nodes(count: int, seed: int = 1) -> Cluster:
    """Return nodes of several sizes with some resources held."""
    rng = random.Random(seed)
    cluster = Cluster.of(
        node(
            f"n{number}", rng.choice((32, 64, 96)), rng.choice((128, 256)), [rng.choice(MODELS)] * rng.choice((0, 4, 8))
        )
        for number in range(count)
    )
    held = {
        name: Shares(rng.randrange(node.cpu_milli), rng.randrange(node.memory_bytes))
        for name, node in cluster.nodes.items()
    }
    return Cluster(cluster.nodes, held)
