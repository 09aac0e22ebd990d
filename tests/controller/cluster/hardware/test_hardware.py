"""Nodes, their held shares, and fitting of requests: exact and immutable."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.cluster.hardware import (
    WHOLE,
    Cluster,
    Device,
    DeviceRequest,
    DeviceShare,
    Missing,
    Node,
    Request,
    Shares,
    choose,
    fits,
    fragments,
    nodes_of,
)
from controller.cluster.hardware.errors import HardwareError
from dataplane.topology.file import loads
from dataplane.topology.values import DeviceKind, MediumKind, MemoryMedium

GIB = 1 << 30
GPU, FPGA = DeviceKind.GPU, DeviceKind.FPGA
NODE = Node(
    "h1",
    cpu_milli=8000,
    memory=(MemoryMedium(MediumKind.DRAM, 64 * GIB), MemoryMedium(MediumKind.SCM, 512 * GIB)),
    devices=(
        Device(0, GPU, "A100", 40 * GIB),
        Device(1, GPU, "A100", 40 * GIB),
        Device(2, GPU, "T4", 16 * GIB),
        Device(3, FPGA, "U280"),
    ),
)


def device_request(thousandths: int = WHOLE, *models: str, count: int = 1, memory_bytes: int = 0) -> Request:
    return Request(devices=(DeviceRequest(GPU, count, thousandths, frozenset(models), memory_bytes),))


def test_hosts_with_hardware_are_nodes_without_device_cpus() -> None:
    topology = loads(
        "millrace: 1\nname: x\nswitches: [{name: s}]\nhosts:\n"
        "- {name: a, switch: s, cores: 4, memory: [{kind: dram, capacity: 8 GiB}], "
        "devices: [{kind: cpu, model: M}, {kind: gpu, count: 2, memory: 16 GiB}, {kind: fpga}]}\n"
        "- {name: b, switch: s}\n"
    )
    (node,) = nodes_of(topology)
    assert (node.name, node.cpu_milli, node.memory_bytes) == ("a", 4000, 8 * GIB)
    assert [(device.number, device.kind, device.memory_bytes) for device in node.devices] == [
        (0, GPU, 16 * GIB),
        (1, GPU, 16 * GIB),
        (2, FPGA, None),
    ]
    assert [device.model for device in node.processors] == ["M"]


def test_refusal_names_all_missing_amounts() -> None:
    held = Shares(5000, 60 * GIB, (DeviceShare(0, 500, 0), DeviceShare(1, 1000, 0)))
    refusal = fits(NODE, held, Request(4000, 5 * GIB, (DeviceRequest(GPU, 1, 600, frozenset({"A100"})),)))
    assert refusal is not None
    assert refusal.missing == (
        Missing("cpu", 4000, 3000, "thousandths of cores"),
        Missing("memory", 5 * GIB, 4 * GIB, "bytes"),
        Missing("gpu A100", 600, 500, "thousandths of one device"),
    )
    assert str(refusal).startswith("h1: cpu: 4000 thousandths of cores wanted, 3000 free; memory: ")


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        (device_request(count=4), Missing("gpu", 4, 3, "whole devices")),
        (device_request(WHOLE, "V100"), Missing("gpu V100", 1, 0, "whole devices")),
        (device_request(10, memory_bytes=41 * GIB), Missing("gpu memory", 41 * GIB, 40 * GIB, "bytes on one device")),
        (
            device_request(count=3, memory_bytes=20 * GIB),
            Missing("gpu", 3, 2, f"whole devices with {20 * GIB} free bytes"),
        ),
        (Request(memory_bytes=65 * GIB), Missing("memory", 65 * GIB, 64 * GIB, "bytes")),
    ],
)
def test_missing_resources_are_named(request_: Request, missing: Missing) -> None:
    refusal = fits(NODE, Shares(), request_)
    assert refusal is not None
    assert refusal.missing == (missing,)


def test_the_fullest_device_that_will_do_is_chosen() -> None:
    held = Shares(devices=(DeviceShare(1, 400), DeviceShare(2, 700)))
    assert choose(NODE, held, device_request(500)).devices == (DeviceShare(1, 500),)
    assert choose(NODE, held, device_request(300)).devices == (DeviceShare(2, 300),)
    assert choose(NODE, held, device_request(700)).devices == (DeviceShare(0, 700),)


def test_request_with_least_choice_chooses_first() -> None:
    any_gpu, an_a100 = DeviceRequest(GPU, 1), DeviceRequest(GPU, 2, WHOLE, frozenset({"A100"}))
    assert choose(NODE, Shares(), Request(devices=(any_gpu, an_a100))).devices == (
        DeviceShare(0, WHOLE),
        DeviceShare(1, WHOLE),
        DeviceShare(2, WHOLE),
    )


def test_halves_of_one_request_share_a_device() -> None:
    half = DeviceRequest(FPGA, 1, 500)
    assert choose(NODE, Shares(), Request(devices=(half, half))).devices == (DeviceShare(3, 1000),)
    assert fits(NODE, Shares(), Request(devices=(half, half, half))) is not None


def test_fragments_are_unusable_for_a_request() -> None:
    held = Shares(7500, 0, (DeviceShare(0, 300), DeviceShare(2, 600), DeviceShare(3, 900)))
    assert fragments(NODE, held, device_request(500)) == 400 + 100
    assert fragments(NODE, held, device_request(500, "A100")) == 400 + 100
    assert fragments(NODE, held, device_request(400, "T4")) == 700 + 1000 + 100
    assert fragments(NODE, held, device_request(count=1)) == 700 + 400 + 100
    everything = 700 + 1000 + 400 + 100
    assert fragments(NODE, held, device_request(count=2)) == everything
    assert fragments(NODE, held, Request(1000, 0, device_request(100).devices)) == everything
    assert fragments(NODE, held, Request(100)) == everything


def test_taking_and_releasing_leave_the_old_value_as_it_was() -> None:
    empty = Cluster.of([NODE])
    shares = empty.choose("h1", Request(1500, GIB, device_request(250, memory_bytes=4 * GIB).devices))
    taken = empty.take("h1", shares)
    assert (empty.held_of("h1"), taken.held_of("h1")) == (Shares(), shares)
    assert taken.take("h1", shares).release("h1", shares).held_of("h1") == shares
    assert taken.release("h1", shares).held_of("h1") == Shares()


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        (Shares(8001), "h1: 8001 thousandths of cores exceed 8000"),
        (Shares(0, 65 * GIB), f"h1: {65 * GIB} bytes of memory exceed {64 * GIB}"),
        (Shares(devices=(DeviceShare(4, 1),)), "h1: there is no device 4"),
        (
            Shares(devices=(DeviceShare(2, 1, 17 * GIB),)),
            f"h1: device 2: {17 * GIB} bytes of memory exceed {16 * GIB}",
        ),
        (Shares(devices=(DeviceShare(3, 1, 1),)), "h1: device 3: 1 bytes of memory exceed 0"),
    ],
)
def test_more_than_there_is_cannot_be_taken(shares: Shares, problem: str) -> None:
    with pytest.raises(HardwareError, match=f"^{problem}"):
        Cluster.of([NODE]).take("h1", shares)
    with pytest.raises(HardwareError, match=f"^{problem}"):
        Cluster({"h1": NODE}, {"h1": shares})


def test_only_held_shares_can_be_released() -> None:
    cluster = Cluster.of([NODE]).take("h1", Shares(1000, 5, (DeviceShare(0, 500, 7),)))
    for shares in (
        Shares(1001),
        Shares(0, 6),
        Shares(devices=(DeviceShare(0, 501),)),
        Shares(devices=(DeviceShare(0, 0, 8),)),
        Shares(devices=(DeviceShare(1, 1),)),
    ):
        with pytest.raises(HardwareError, match=r"^h1: .* not held"):
            cluster.release("h1", shares)
    with pytest.raises(HardwareError, match="h1: shares are held of device 9, which does not exist"):
        fits(NODE, Shares(devices=(DeviceShare(9, 1),)), device_request(1))
    with pytest.raises(HardwareError, match="h2: no such node"):
        cluster.fits("h2", Request())


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeviceRequest(GPU, 0),
        lambda: DeviceRequest(GPU, 2, 500),
        lambda: DeviceRequest(GPU, 1, 1001),
        lambda: DeviceRequest(GPU, memory_bytes=-1),
        lambda: DeviceRequest(DeviceKind.CPU),
        lambda: Request(-1),
        lambda: Shares(-1),
        lambda: Shares(devices=(DeviceShare(1, 5), DeviceShare(0, 5))),
        lambda: Shares(devices=(DeviceShare(1, 5), DeviceShare(1, 5))),
        lambda: Shares(devices=(DeviceShare(1, 0),)),
        lambda: Shares(devices=(DeviceShare(1, 1001),)),
        lambda: Node("x", -1),
        lambda: Node("x", 1, devices=(Device(1, GPU),)),
        lambda: Node("x", 1, devices=(Device(0, DeviceKind.CPU),)),
        lambda: Cluster.of([NODE, NODE]),
    ],
)
def test_invalid_hardware_is_refused(make: object) -> None:
    with pytest.raises(HardwareError):
        make()  # type: ignore[operator]


def serves(node: Node, held: Shares, wanted: DeviceRequest) -> bool:
    """Try all choices of devices; return whether any fits."""
    able = [
        device.number
        for device in node.devices
        if wanted.accepts(device)
        and held.of(device.number).thousandths + wanted.thousandths <= WHOLE
        and held.of(device.number).memory_bytes + wanted.memory_bytes <= (device.memory_bytes or 0)
    ]
    return next(combinations(able, wanted.count), None) is not None


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1 << 32))
def test_a_long_story_of_takes_and_releases_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    cluster, holders = Cluster.of([NODE]), list[Shares]()
    for _ in range(60):
        if holders and rng.random() < 0.4:
            cluster = cluster.release("h1", holders.pop(rng.randrange(len(holders))))
        else:
            wanted = DeviceRequest(
                GPU if rng.random() < 0.8 else FPGA,
                count := rng.choice((1, 1, 1, 2)),
                WHOLE if count > 1 else rng.choice((100, 250, 300, WHOLE)),
                frozenset(rng.sample(("A100", "T4", "U280"), rng.randrange(3))),
                rng.choice((0, GIB, 10 * GIB)),
            )
            request = Request(rng.randrange(2000), rng.randrange(8 * GIB), (wanted,))
            held = cluster.held_of("h1")
            able = (
                held.cpu_milli + request.cpu_milli <= NODE.cpu_milli
                and held.memory_bytes + request.memory_bytes <= NODE.memory_bytes
                and serves(NODE, held, wanted)
            )
            assert (cluster.fits("h1", request) is None) == able
            if able:
                holders.append(cluster.choose("h1", request))
                cluster = cluster.take("h1", holders[-1])
        total = Shares()
        for shares in holders:
            total += shares
        assert cluster.held_of("h1") == total
    for shares in holders:
        cluster = cluster.release("h1", shares)
    assert cluster.held_of("h1") == Shares()
