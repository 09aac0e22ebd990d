"""Levers and meters from settings, if this machine has them; each missing one is reported as a line."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from collectors.devices.nvml import Nvml
from collectors.devices.root import Root
from collectors.devices.sampling import Sampler
from collectors.devices.shapers import shaped_rate_bps
from controller.apiserver.agents.access import namespace_of
from controller.balance.errors import LeverError, SampleError
from controller.balance.levers.making import local_levers
from controller.balance.levers.pool import PoolUnits, Reporter
from controller.balance.levers.running_program import ProgramConcurrency, ProgramLink, ProgramPrecision
from controller.balance.levers.settings import LeverSettings, PoolLever
from controller.balance.levers.values import Lever
from controller.balance.running.loop import Metered, Source
from controller.balance.running.meters import (
    DeviceBus,
    DeviceLoad,
    DeviceUse,
    GroupLoad,
    InterfaceUse,
    Meter,
    ProgramBus,
    ProgramLoad,
    ProgramUse,
    ReceivedByTelemetry,
)
from controller.balance.running.settings import InterfaceBus, RunSettings
from controller.balance.values import LeverKind
from controller.cluster.cost_map import CostMap
from dataplane.clock import Clock
from dataplane.errors import FabricError
from dataplane.fabric.kernel import namespaces
from dataplane.rpc.own_folder import own_folders, prepare
from dataplane.topology.units import parse_rate_bps

# Ensures that only one process drives a holder of a pool: two would undo each other's reports and quotas.
#
# A lock on a file in the folder of this user's own services, which the kernel releases whenever the process dies. It
# separates processes of one user on one machine, and depends on the service's address in the settings.


_UNIX: Final = "unix:"
_DIGITS: Final = 32


@contextmanager
def single_instance(pool: str, holder: str, address: str, folder: Path | None = None) -> Iterator[None]:
    """Hold the exclusive lock of a pool's holder at a service's address while the block lasts.

    Raise LeverError if another process holds it, or if that cannot be determined.
    """
    folder = own_folders()[0] if folder is None else folder
    lever = f"units of pool {pool}"
    if (why_not := prepare(folder)) is not None:
        raise LeverError(lever, why_not)
    file = folder / f"drive-{_digest(pool, holder, address)}.lock"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise LeverError(lever, f"{file}: {error.strerror}") from error
    try:
        _lock(descriptor, lever, holder)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, lever: str, holder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise LeverError(lever, f"holder {holder} is already driven on this machine (process {owner})") from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _digest(pool: str, holder: str, address: str) -> str:
    """Return a name for the lock; holders' names may be longer than a file's."""
    if address.startswith(_UNIX):
        address = f"{_UNIX}{Path(address.removeprefix(_UNIX)).resolve()}"
    return hashlib.sha256("\n".join((pool, holder, address)).encode()).hexdigest()[:_DIGITS]


T = TypeVar("T")
Costs = Callable[[], CostMap]


@dataclass(frozen=True, slots=True)
class Host:
    """A machine's means to measure and to move: its files, clock and NVML, or a line that says why NVML is missing."""

    root: Root
    clock: Clock
    nvml: Nvml | str
    program: ProgramLink | None = None
    """The unit's socket for a program, if its settings have one."""


def levers_of(
    settings: LeverSettings, host: Host, reporter: Callable[[PoolLever], Reporter]
) -> tuple[list[Lever], list[str]]:
    """Return the available levers, and a line for each missing one.

    If the pool cannot be reached, its local lever is not used either: it would take what the books give to others.
    """
    levers, absent = local_levers(settings, host.root, host.nvml)
    if settings.program is not None and host.program is not None:
        program, may_set = settings.program, settings.program.set
        levers += [ProgramPrecision(host.program, may_set=may_set)] if program.precision else []
        levers += [ProgramConcurrency(host.program, may_set=may_set)] if program.concurrency else []
    if settings.pool is not None:
        local = next((lever for lever in levers if lever.kind is LeverKind.SUB_UNITS), None)
        others = [lever for lever in levers if lever is not local]
        pool = settings.pool
        try:
            units = PoolUnits(
                reporter(pool),
                pool.pool,
                pool.holder,
                host.clock,
                local=local,
                patience_s=pool.patience_s,
                may_set=pool.set,
            )
        except LeverError as error:
            return others, [*absent, str(error)]
        return [units, *others], absent
    return levers, absent


def source_of(settings: RunSettings, host: Host, costs: Costs | None) -> Source:
    """Return a unit's source of samples; `costs` returns the current cost map, if its bus is measured by telemetry."""
    unit = settings.unit
    sampler = Sampler(host.root, host.clock, None if isinstance(host.nvml, str) else host.nvml)
    program = None if host.program is None else ProgramUse(unit, host.program)
    uses: dict[str, DeviceUse] = {}

    def use_of(address: str) -> DeviceUse:
        return uses.setdefault(address, DeviceUse(unit, address, sampler))

    bus: Meter
    if settings.bus.interface is not None:
        bus = _interface(unit, settings.bus.interface, host.root)
    elif settings.bus.telemetry is not None and costs is not None:
        bus = ReceivedByTelemetry(unit, settings.bus.telemetry.host, costs)
    elif program is not None and settings.bus.program is not None:
        bus = ProgramBus(unit, program)
    else:
        bus = DeviceBus(use_of(settings.bus.pcie or ""))
    load: Meter
    if settings.load.group is not None:
        load = GroupLoad(unit, settings.load.group, host.root)
    elif program is not None and settings.load.program is not None:
        load = ProgramLoad(unit, program)
    else:
        load = DeviceLoad(use_of(settings.load.device or ""))
    return Metered(unit, bus, load)


def _interface(unit: str, settings: InterfaceBus, root: Root) -> Meter:
    name = settings.interface
    rate_bps = partial(parse_rate_bps, settings.rate) if settings.rate is not None else partial(shaped_rate_bps, name)
    namespace = namespace_of(settings.namespace)
    if namespace is None:
        return InterfaceUse(unit, name, settings.direction, rate_bps, root)
    # Only this thread enters the namespace to see its devices; the process stays in its own.
    meter = InterfaceUse(unit, name, settings.direction, rate_bps, root, "thread-self")
    return _InNamespace(unit, meter, str(namespace))


class _InNamespace:
    """A meter that reads in another network namespace."""

    def __init__(self, unit: str, meter: Meter, namespace: str) -> None:
        self._unit, self._meter, self._namespace = unit, meter, namespace

    def begin(self, now_ns: int) -> None:
        self._call(lambda: self._meter.begin(now_ns))

    def share(self, now_ns: int) -> float:
        return self._call(lambda: self._meter.share(now_ns))

    def _call(self, function: Callable[[], T]) -> T:
        try:
            return namespaces.call(self._namespace, function)
        except FabricError as error:
            raise SampleError(self._unit, str(error)) from error
