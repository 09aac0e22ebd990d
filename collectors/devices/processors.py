"""Processors: number, model, load and clock; and pressure: tasks' waits for resources.

Sources: proc(5), Documentation/ABI/stable/sysfs-devices-system-cpu and Documentation/accounting/psi.rst of Linux.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from collectors.devices.root import Root, integer_of, real_of
from collectors.devices.values import Pressure, Processors
from dataplane.cgroups import parse_cpus

_CPU: Final = ("sys", "devices", "system", "cpu")
_TICKS: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal: later fields are included in user."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """All CPUs' time since start, in the kernel's ticks; stolen time is busy, as programs cannot have it."""

    busy: int
    total: int


def read_processors(root: Root) -> Processors:
    """Return the machine's processors; None for what neither /sys nor /proc/cpuinfo shows."""
    entries = _cpuinfo(root)
    online = parse_cpus(root.text(*_CPU, "online") or "")
    online = online or frozenset(int(entry["processor"]) for entry in entries)
    places = {_place(root, cpu, entries) for cpu in online}
    sockets = {socket for socket, _ in places if socket is not None}
    cores = {core for core in places if None not in core}
    frequencies = [root.integer(*_CPU, f"cpu{cpu}", "cpufreq", "cpuinfo_max_freq") for cpu in online]
    max_khz = max((khz for khz in frequencies if khz), default=None)
    return Processors(
        model=next((entry["model name"] for entry in entries if "model name" in entry), ""),
        online=online,
        sockets=len(sockets) or None,
        cores=len(cores) or None,
        max_hz=None if max_khz is None else max_khz * 1000,
    )


def read_cpu_times(root: Root) -> CpuTimes | None:
    """Return how long all CPUs were busy since start, None where /proc/stat does not exist."""
    words = (root.text("proc", "stat") or "").partition("\n")[0].split()
    if words[:1] != ["cpu"] or len(words) <= _TICKS:
        return None
    ticks = [tick for word in words[1 : 1 + _TICKS] if (tick := integer_of(word)) is not None]
    if len(ticks) < _TICKS:
        return None
    idle = ticks[3] + ticks[4]
    return CpuTimes(sum(ticks) - idle, sum(ticks))


def busy_share(before: CpuTimes, after: CpuTimes) -> float | None:
    """Return the share of all CPUs' time that was busy between two readings, None where no time has passed."""
    total = after.total - before.total
    return min(max((after.busy - before.busy) / total, 0.0), 1.0) if total > 0 else None


def read_clock_hz(root: Root, processors: Processors) -> int | None:
    """Return the mean clock of the CPUs that are online now."""
    khz_of = [root.integer(*_CPU, f"cpu{cpu}", "cpufreq", "scaling_cur_freq") for cpu in processors.online]
    clocks_hz = [khz * 1000 for khz in khz_of if khz]
    if not clocks_hz:
        megahertz = (real_of(entry.get("cpu MHz", "")) for entry in _cpuinfo(root))
        clocks_hz = [round(clock * 1e6) for clock in megahertz if clock]
    return sum(clocks_hz) // len(clocks_hz) if clocks_hz else None


def read_pressure(root: Root) -> dict[str, Pressure]:
    """Return the pressure on cpu, memory and io, of those that the kernel measures."""
    pressure = {}
    for resource in ("cpu", "memory", "io"):
        lines = (root.text("proc", "pressure", resource) or "").splitlines()
        pairs = [line.partition(" avg10=") for line in lines]
        shares = {who: real_of(rest.partition(" ")[0]) for who, _, rest in pairs}
        if (some := shares.get("some")) is not None:
            full = shares.get("full")
            pressure[resource] = Pressure(some / 100, None if full is None else full / 100)
    return pressure


def _place(root: Root, cpu: int, entries: list[dict[str, str]]) -> tuple[int | None, int | None]:
    """Return a CPU's socket and core."""
    folder = (*_CPU, f"cpu{cpu}", "topology")
    socket, core = root.integer(*folder, "physical_package_id"), root.integer(*folder, "core_id")
    if socket is None:
        entry = next((entry for entry in entries if entry.get("processor") == str(cpu)), {})
        socket, core = (integer_of(entry.get(key, "")) for key in ("physical id", "core id"))
    return socket, core


def _cpuinfo(root: Root) -> list[dict[str, str]]:
    """Return the fields of each CPU in /proc/cpuinfo; other blocks, as some machines have at the end, are left out."""
    blocks = (root.text("proc", "cpuinfo") or "").split("\n\n")
    pairs = [[line.partition(":") for line in block.splitlines()] for block in blocks]
    entries = [{key.strip(): value.strip() for key, _, value in block} for block in pairs]
    return [entry for entry in entries if entry.get("processor", "").isdecimal()]
