"""The hardware file: the machines that share a job, their reduction, and their devices beyond CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.trees import Aggregators
from controller.acceleration.values import TIE_BAND, Accelerator, Compression, TransferModel
from controller.network.tables.aggregation import CELLS
from dataplane.config import Document, Strict, load_document
from dataplane.topology.units import parse_bytes_per_s, parse_rate_bps, parse_size_bytes
from dataplane.topology.values import DeviceKind

_GB: Final = 1e9
_GBIT_BITS: Final = 1e9
PCIE_GB_PER_S: Final = 12.8
"""Measured rate of PCIe 3.0 x16; the default without a value in the hardware file or the topology."""

OPTIONAL: Final = frozenset({"bus", "memory"})
"""Properties of an accelerator that may come from the topology."""


class CompressionSpec(Strict, frozen=True):
    """`ratio` is compressed over plain size, `rate` the accelerator's compression rate, as in '0.1 GB/s'."""

    ratio: float
    rate: str


class AcceleratorSpec(Strict, frozen=True):
    """An accelerator of every machine; the fields of `Accelerator`, with sizes and rates as text with units.

    Missing `bus` and `memory` are taken from the machines' devices of this kind in the topology.
    """

    kind: DeviceKind
    parallelism: float
    name: str = ""
    relative_speed: float = 1.0
    bus: str | None = None
    memory: str | None = None
    compression: CompressionSpec | None = None
    runs: tuple[str, ...] | None = None
    on_the_way: bool = False
    speed_up: dict[str, float] = msgspec.field(default_factory=dict)


class SwitchSpec(Strict, frozen=True):
    """Switches that add up for jobs (fabric_aggregation); `cells` are those available to a job in each.

    `efficiency` is the share of a free link that hosts' packets actually fill: their packet engine may be slower.
    `setup_s` is the time until a task's workers have joined a job of their own; jobs of a training are there already.
    """

    cells: Annotated[int, msgspec.Meta(ge=2, le=CELLS)] = CELLS
    efficiency: float = 1.0
    setup_s: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 1.0


class HardwareSpec(Strict, frozen=True):
    """`machines` are names of the topology's hosts, or their number; by default, all of the topology."""

    millrace: Literal[1]
    machines: tuple[str, ...] | int | None = None
    fan_in: int = 10
    aggregators: Aggregators = Aggregators.APART
    transfer: TransferModel | None = None
    finite_sum: bool = False
    network_efficiency: float = 1.0
    host_rate: str | None = None
    preset: float = 1.0
    tie_band: float = TIE_BAND
    accelerators: tuple[AcceleratorSpec, ...] = ()
    switch: SwitchSpec | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """Contents of a hardware file. `accelerators` lack the topology's values where `given` does not name them.

    `machines` are names, a number, or None for all. `transfer` None is per-path if there are paths, else the sum.
    `network_efficiency` is the share of a path's free bandwidth that data gets, `host_rate_bps` the most that a
    machine's processor can send or receive. `given` are the `OPTIONAL` figures given in the file, one set per
    accelerator; all are given if there is no set.
    """

    machines: tuple[str, ...] | int | None = None
    fan_in: int = 10
    aggregators: Aggregators = Aggregators.APART
    transfer: TransferModel | None = None
    has_finite_sum: bool = False
    network_efficiency: float = 1.0
    host_rate_bps: float = math.inf
    preset: float = 1.0
    tie_band: float = TIE_BAND
    accelerators: tuple[Accelerator, ...] = ()
    given: tuple[frozenset[str], ...] = ()
    switch: SwitchSpec | None = None

    def rate_gbit_per_s(self, rate_bps: float) -> float:
        """Return the data rate between two machines, limited by their processors."""
        return min(self.network_efficiency * rate_bps, self.host_rate_bps) / _GBIT_BITS


def load_hardware(path: Path) -> Hardware:
    """Return the contents of a hardware file (YAML, TOML or JSON); raise ConfigError with file, line and key."""
    document = load_document(path, HardwareSpec)
    spec = document.value
    _check(document)
    specs = list(enumerate(spec.accelerators))
    return Hardware(
        machines=spec.machines,
        fan_in=spec.fan_in,
        aggregators=spec.aggregators,
        transfer=spec.transfer,
        has_finite_sum=spec.finite_sum,
        network_efficiency=spec.network_efficiency,
        host_rate_bps=_host_rate_bps(document),
        preset=spec.preset,
        tie_band=spec.tie_band,
        accelerators=tuple(
            _accelerator(document, accelerator, f"accelerators[{index}]") for index, accelerator in specs
        ),
        given=tuple(
            frozenset(name for name in OPTIONAL if getattr(accelerator, name) is not None) for _, accelerator in specs
        ),
        switch=spec.switch,
    )


def _check(document: Document[HardwareSpec]) -> None:
    spec = document.value
    _check_machines(document, spec.machines)
    if spec.fan_in < 2:
        raise document.error(f"a fan-in of {spec.fan_in} is below 2", "fan_in")
    if not 1 <= spec.preset < math.inf:
        raise document.error(f"a preset of {spec.preset} is not finite and at least 1", "preset")
    if not 0 <= spec.tie_band < math.inf:
        raise document.error(f"a tie band of {spec.tie_band} is not finite and at least 0", "tie_band")
    shares = {"network_efficiency": spec.network_efficiency}
    if spec.switch is not None:
        shares["switch.efficiency"] = spec.switch.efficiency
    for key, share in shares.items():
        if not 0 < share <= 1:
            raise document.error(f"{share} is not above 0 and at most 1", key)
    if spec.switch is not None and spec.switch.cells & (spec.switch.cells - 1):
        raise document.error(f"{spec.switch.cells} cells: not a power of two", "switch.cells")
    labels = [accelerator.name or accelerator.kind.value for accelerator in spec.accelerators]
    if (index := _repeated(labels)) is not None:
        raise document.error(
            f"two accelerators have the label {labels[index]}: give one a name", f"accelerators[{index}]"
        )


def _check_machines(document: Document[HardwareSpec], machines: tuple[str, ...] | int | None) -> None:
    if isinstance(machines, int):
        if machines < 1:
            raise document.error(f"{machines} machines: at least 1 needed", "machines")
        return
    if machines == ():
        raise document.error("no machines", "machines")
    if machines and (index := _repeated(machines)) is not None:
        raise document.error(f"machine {machines[index]} is named twice", f"machines[{index}]")


def _host_rate_bps(document: Document[HardwareSpec]) -> float:
    if document.value.host_rate is None:
        return math.inf
    with _placed(document, "host_rate"):
        return parse_rate_bps(document.value.host_rate)


def _repeated(names: Sequence[str]) -> int | None:
    """Return the position of the first repeated name."""
    return next((index for index, name in enumerate(names) if name in names[:index]), None)


def _accelerator(document: Document[HardwareSpec], spec: AcceleratorSpec, at: str) -> Accelerator:
    with _placed(document, f"{at}.bus"):
        bus_gb_per_s = PCIE_GB_PER_S if spec.bus is None else _gb_per_s(spec.bus)
    with _placed(document, f"{at}.memory"):
        memory_gb = math.inf if spec.memory is None else parse_size_bytes(spec.memory) / _GB
    with _placed(document, at):
        return Accelerator(
            kind=spec.kind,
            parallelism=spec.parallelism,
            relative_speed=spec.relative_speed,
            bus_gb_per_s=bus_gb_per_s,
            compression=_compression(document, spec.compression, f"{at}.compression"),
            memory_gb=memory_gb,
            runs=None if spec.runs is None else frozenset(spec.runs),
            is_on_the_way=spec.on_the_way,
            speed_up=tuple(sorted(spec.speed_up.items())),
            name=spec.name,
        )


def _compression(document: Document[HardwareSpec], spec: CompressionSpec | None, at: str) -> Compression | None:
    if spec is None:
        return None
    with _placed(document, f"{at}.rate"):
        gb_per_s = _gb_per_s(spec.rate)
    with _placed(document, at):
        return Compression(spec.ratio, gb_per_s)


def _gb_per_s(text: str) -> float:
    """Return a rate in GB/s; 'inf' means no transfer time, as between devices with shared memory."""
    return math.inf if text == "inf" else parse_bytes_per_s(text) / _GB


@contextmanager
def _placed(document: Document[HardwareSpec], at: str) -> Iterator[None]:
    """Add the position in the file to a value's error."""
    try:
        yield
    except AccelerationError as error:
        raise document.error(error.problem, f"{at}.{error.at}" if error.at else at) from error
    except ValueError as error:
        raise document.error(str(error), at) from error
