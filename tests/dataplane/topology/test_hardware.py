"""Hardware of hosts in a topology file."""

from __future__ import annotations

import pytest

from dataplane.errors import ConfigError
from dataplane.topology.file import dumps, loads
from dataplane.topology.hardware import RatesSpec
from dataplane.topology.values import (
    Bus,
    BusKind,
    Device,
    DeviceKind,
    MediumKind,
    MemoryMedium,
    NumberFormat,
    PeakRate,
)

TEXT = """\
millrace: 1
name: lab
switches: [{name: s1}]
hosts:
- name: h1
  switch: s1
  cores: 64
  memory:
  - {kind: dram, capacity: 512 GiB, read_latency: 90 ns, write_latency: 95 ns, bandwidth: 204.8 GB/s}
  - {kind: scm, capacity: 1.5 TiB, read_latency: 300 ns}
  devices:
  - {kind: cpu, count: 2, model: EPYC 7543}
  - {kind: gpu, count: 4, model: A100, memory: 40 GiB, bus: {kind: pcie, rate: 25 GB/s},
     rates: {int8: 624 Top/s, fp64: 9.7 Top/s}}
  - {kind: fpga, model: U280, memory_bytes: 8589934592}
- {name: h2, switch: s1}
"""


def test_hardware_reads_as_it_stands() -> None:
    h1, h2 = loads(TEXT).hosts
    assert (h1.cores, h2.cores, h2.memory, h2.devices) == (64, None, (), ())
    assert h1.memory == (
        MemoryMedium(MediumKind.DRAM, 512 << 30, 90, 95, 204_800_000_000),
        MemoryMedium(MediumKind.SCM, 3 << 39, 300),
    )
    rates = (PeakRate(NumberFormat.INT8, 624 * 10**12), PeakRate(NumberFormat.FP64, 9_700_000_000_000))
    assert h1.devices == (
        Device(DeviceKind.CPU, 2, "EPYC 7543"),
        Device(DeviceKind.GPU, 4, "A100", 40 << 30, Bus(BusKind.PCIE, 25_000_000_000), rates),
        Device(DeviceKind.FPGA, 1, "U280", 8 << 30),
    )


def test_hardware_is_written_back() -> None:
    assert loads(dumps(loads(TEXT))) == loads(TEXT)
    assert "memory: 40 GiB" in dumps(loads(TEXT))


BAD = [
    ("cores: 64", "cores: 0", 7, "hosts[0].cores"),
    ("cores: 64", "cores: 1.5", 7, "hosts[0].cores"),
    ("cores: 64", "core: 64", 7, "hosts[0].core"),
    ("kind: dram", "kind: ram", 9, "hosts[0].memory[0].kind"),
    ("capacity: 512 GiB", "capacity: 512 GB", 9, "hosts[0].memory[0].capacity"),
    ("capacity: 512 GiB, ", "", 9, "hosts[0].memory[0]"),
    ("read_latency: 90 ns", "read_latency: 90", 9, "hosts[0].memory[0].read_latency"),
    ("bandwidth: 204.8 GB/s", "bandwidth: 204.8 Gbit/s", 9, "hosts[0].memory[0].bandwidth"),
    ("bandwidth: 204.8", "speed: 204.8", 9, "hosts[0].memory[0].speed"),
    ("memory: 40 GiB", "memory: 40", 13, "hosts[0].devices[1].memory"),
    ("memory: 40 GiB", "memory: 40 GiB, memory_bytes: 1", 13, "hosts[0].devices[1].memory_bytes"),
    ("kind: pcie", "kind: isa", 13, "hosts[0].devices[1].bus.kind"),
    ("rate: 25 GB/s", "rate: 0 GB/s", 13, "hosts[0].devices[1].bus.rate"),
    ("int8: 624", "int9: 624", 14, "hosts[0].devices[1].rates.int9"),
    ("fp64: 9.7 Top/s", "fp64: 9.7 TFLOPS", 14, "hosts[0].devices[1].rates.fp64"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "key"), BAD, ids=[wrong for _, wrong, _, _ in BAD])
def test_wrong_hardware_is_refused_with_line_and_key(right: str, wrong: str, line: int, key: str) -> None:
    assert TEXT.count(right) == 1
    with pytest.raises(ConfigError) as caught:
        loads(TEXT.replace(right, wrong), file="t.yaml")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("t.yaml", line, key)


def test_every_number_format_has_a_key() -> None:
    assert set(RatesSpec.__struct_fields__) == {kind.value for kind in NumberFormat}
