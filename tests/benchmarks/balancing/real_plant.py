"""A compute unit of this machine: a worker under a quota of CPU time, fed over a link that a token bucket shapes."""

from __future__ import annotations

import secrets
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyroute2 import IPRoute

from collectors.devices.root import Root
from collectors.devices.shapers import shaped_rate_bps
from controller.balance.levers.quota import CpuQuota
from controller.balance.running.loop import Metered
from controller.balance.running.meters import Direction, GroupLoad, InterfaceUse
from dataplane.cgroup_limits import limit, make_group, remove_empty
from dataplane.cgroups import kill_in
from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.manifest import held_namespaces

UNIT_MILLI: Final = 10
"""A sub-unit is a hundredth of a CPU."""
PERIOD_US: Final = 10_000
_BURST_BYTES: Final = 16 << 10
_QUEUE_BYTES: Final = 64 << 10
_HANDLE: Final = 0x10000
_PORT: Final = 7000
_PROGRAM: Final = Path(__file__).with_name("fed_worker.py")
_UPSTREAM, _UNIT = "10.78.0.1", "10.78.0.2"


class RealPlant:
    """Upstream and unit in two namespaces while the `with` block lasts; needs root and a quota of CPU time.

    `cpu_s_per_megabyte` is what a megabyte costs the worker: at a rate of r MB/s as much of a CPU as r times that keeps
    up with the link.
    """

    def __init__(self, rate_bps: int, cpu_s_per_megabyte: float, sub_units: int) -> None:
        name = f"mr-balance-{secrets.token_hex(3)}"
        self.upstream, self.unit, self.group = f"{name}-a", f"{name}-b", f"/{name}"
        self._rate_bps, self._cost, self._sub_units = rate_bps, cpu_s_per_megabyte, sub_units
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(held_namespaces(self.upstream, self.unit))
            namespaces.call(self.upstream, partial(_cable, self.unit))
            namespaces.call(self.unit, partial(_address, "e0", _UNIT))
            self.shape(self._rate_bps)
            stack.callback(remove_empty, self.group)
            group = make_group(self.group)
            limit(self.group, self._sub_units * UNIT_MILLI, None, period_us=PERIOD_US)
            _prefer(group.folders["cpu"], is_unified="cpu" in group.unified)
            worker = self._start(stack, self.unit, "work", _UNIT, str(_PORT), str(self._cost))
            stack.callback(kill_in, group)
            for folder in set(group.folders.values()):
                (folder / "cgroup.procs").write_text(str(worker.pid))
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            self.feeder = self._start(stack, self.upstream, "feed", _UNIT, str(_PORT))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def shape(self, rate_bps: int) -> None:
        """Have the link from upstream to the unit carry so much."""
        namespaces.call(self.upstream, partial(_shape, rate_bps))

    def source(self) -> Metered:
        """Return what measures the unit: upstream's own counters, and the worker's CPU time against its quota."""
        rate_bps = partial(namespaces.call, self.upstream, partial(shaped_rate_bps, "e0"))
        bus = InterfaceUse("unit", "e0", Direction.SENT, rate_bps, Root(), str(self.feeder.pid))
        return Metered("unit", bus, GroupLoad("unit", self.group, Root()))

    def lever(self, low: int = 10, high: int = 100) -> CpuQuota:
        """Return the quota as sub-units."""
        return CpuQuota(self.group, UNIT_MILLI, low=low, high=high, may_set=True, period_us=PERIOD_US)

    def _start(self, stack: ExitStack, namespace: str, *words: str) -> subprocess.Popen[bytes]:
        process = namespaces.start(namespace, [sys.executable, "-S", str(_PROGRAM), *words], stdout=subprocess.PIPE)
        stack.callback(_end, process)
        return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _cable(other: str) -> None:
    with IPRoute() as netlink, namespaces.open_namespace(other) as there:
        netlink.link("add", ifname="e0", kind="veth", peer={"ifname": "e0", "net_ns_fd": there.fileno()})
    _address("e0", _UPSTREAM)


def _address(device: str, address: str) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.addr("add", index=index, address=address, prefixlen=24)
        netlink.link("set", index=index, state="up")


def _shape(rate_bps: int) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname="e0")[0]
        is_there = any(get_qdisc.get_attr("TCA_KIND") == "tbf" for get_qdisc in netlink.get_qdiscs(index))
        how = {"rate": rate_bps // 8, "burst": _BURST_BYTES, "limit": _QUEUE_BYTES}
        netlink.tc("replace" if is_there else "add", "tbf", index, _HANDLE, **how)


def _prefer(folder: Path, *, is_unified: bool) -> None:
    """Give the unit its full quota whatever else the machine does: only the quota may limit it."""
    (folder / ("cpu.weight" if is_unified else "cpu.shares")).write_text("10000" if is_unified else "100000")
