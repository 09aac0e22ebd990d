"""API server and two services of unit pools are killed, while holders ask and fall silent and pods come.

Holders keep to the protocol: they use no more units than they have promised and the server has taken, and none once no
report has got through for half of the lease. A ledger adds up what is used at each change, pods' devices with it: never
more than there is. Afterwards every holder has its share. Both services decide about the same pools all the time.

Usage: python -m tests.soak.balance [--kills N] [--seed N] [--pause-s S]
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node, Pod, UnitPool
from controller.apiserver.resources.hardware import Device, DeviceNeed, DeviceShare, Hardware, Request
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, Phase, PodSpec
from controller.apiserver.resources.unit_pool import Claim, HolderStatus, UnitPoolSpec
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.balance.settings import BalanceSettings, HistorySettings
from controller.common.errors import ApiError, StaleError
from dataplane.topology.values import DeviceKind
from tests.soak.centres import Daemon
from tests.soak.killing import main
from tests.waiting import comes_true

LEASE_S = 4.0
FENCE_S = LEASE_S / 2
HOLDERS = ("a", "b", "c")
POOLS = {"cloud": 40, "tenths": 20}
TENTH = 100
_AIMS = {"a": 10, "b": 20, "c": 30}
"""Final demand of the holders; out of 40 units, all but a accept less."""
_SETTLE_S = 90.0


@dataclass
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: Counter[str] = field(default_factory=Counter)
    reports: int = 0
    fenced: int = 0
    refused: int = 0
    bound: int = 0
    looks: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Ledger:
    """Current usage of each pool, in units; records excess use and raises nothing."""

    def __init__(self, report: Report) -> None:
        self._lock, self._report = threading.Lock(), report
        self._used: dict[tuple[str, str], int] = {}

    def set(self, pool: str, user: str, units: int) -> None:
        with self._lock:
            self._used[pool, user] = units
            used = {who: some for (where, who), some in self._used.items() if where == pool and some}
            total = sum(used.values())
            self._report.most[pool] = max(self._report.most[pool], total)
            if total > POOLS[pool]:
                self._report.problems.append(f"{total} of {POOLS[pool]} units of {pool} are used: {used}")

    def of(self, pool: str, user: str) -> int:
        with self._lock:
            return self._used.get((pool, user), 0)


class Holder:
    """One upstream device in one pool, as its controller: a thread that reports, and one that fences."""

    def __init__(self, soak: Soak, pool: str, name: str, seed: int) -> None:
        self.pool, self.name, self._soak = pool, name, soak
        self._rng, self._client = random.Random(seed), SyncApiClient(Place(soak.socket), tries=1)
        self._lock = threading.Lock()
        self._through_s, self._may, self._silent_until_s = 0.0, 0, 0.0
        self._wants = 0

    def work(self) -> None:
        while not self._soak.stop.is_set():
            if not self._soak.settling.is_set() and self._rng.random() < 0.04:
                self._silent_until_s = time.monotonic() + self._rng.uniform(0.0, 2.5 * LEASE_S)
            if self._soak.settling.is_set() or time.monotonic() >= self._silent_until_s:
                with suppress(ApiError):
                    self._tell()
            time.sleep(self._rng.uniform(0.05, 0.25))
        self._client.close()

    def fence(self) -> None:
        """Stop all use once no report has been accepted for half of the lease."""
        while not self._soak.stop.is_set():
            with self._lock:
                if time.monotonic() - self._through_s > FENCE_S and self._soak.ledger.of(self.pool, self.name):
                    self._soak.ledger.set(self.pool, self.name, 0)
                    self._soak.report.fenced += 1
            time.sleep(0.02)

    def _tell(self) -> None:
        """Use no more than allowed, promise that, and use it once the server has accepted the promise."""
        with self._lock:
            used = self._soak.ledger.of(self.pool, self.name)
            if self._may < used:
                self._soak.ledger.set(self.pool, self.name, self._may)
            holds = self._may
        sent_s = time.monotonic()
        status = HolderStatus(holder=self.name, wants=self._wanted(), holds=holds)
        try:
            pool, is_taken = self._client.report_units(self.pool, status), True
        except StaleError:
            # Its share fell again before it could promise to use more, or it was silent for too long.
            self._soak.report.refused += 1
            pool, is_taken = self._client.of(UnitPool).get(self.pool), False
        share = next((entry for entry in pool.shares if entry.holder == self.name), None)
        with self._lock:
            used, units = self._soak.ledger.of(self.pool, self.name), 0 if share is None else share.units
            if used > units:
                problem = f"{self.name} uses {used} units of {self.pool}, of which it has {units}"
                self._soak.report.problems.append(problem)
            self._may = 0 if share is None else share.units - share.leaving
            if not is_taken:
                return
            self._soak.report.reports += 1
            self._through_s = sent_s
            if time.monotonic() - sent_s < FENCE_S:
                self._soak.ledger.set(self.pool, self.name, holds)

    def _wanted(self) -> int:
        if self._soak.settling.is_set():
            return _AIMS[self.name] - self._may
        if self._rng.random() < 0.1:
            self._wants = self._rng.randint(-10, 15)
        return self._wants


class Soak:
    """One run in a folder."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng, self.report = folder, rng, Report()
        self.socket = f"unix:{folder}/api.sock"
        self.ledger = Ledger(self.report)
        self.stop, self.settling = threading.Event(), threading.Event()
        settings = ApiSettings(storage=StoragePlace(sqlite=f"{folder}/api.sqlite"), listen=(self.socket,))
        self.api = Daemon(folder, "api", ("api", "serve"), settings)
        self.client = SyncApiClient(Place(self.socket), tries=8)
        self.services = [self._service(name) for name in ("first", "second")]

    def _service(self, name: str) -> Daemon:
        history = HistorySettings(file=f"{self.folder}/{name}.sqlite")
        settings = BalanceSettings(api=self.socket, interval_s=0.1, stale_s=2.0, history=history)
        return Daemon(self.folder, name, ("balance", "serve"), settings)

    def prepare(self) -> None:
        self._until(lambda: self.client.health().status == "ok", _SETTLE_S)
        devices = tuple(Device(number=number, kind=DeviceKind.GPU) for number in range(2))
        hardware = Hardware(cpu_milli=64_000, devices=devices)
        self.client.of(Node).create(Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=hardware)))
        claims = tuple(Claim(holder=holder) for holder in HOLDERS)
        cloud = UnitPoolSpec(units=POOLS["cloud"], claims=claims, lease_s=LEASE_S)
        tenths = UnitPoolSpec(units=POOLS["tenths"], claims=claims, lease_s=LEASE_S, node="h1", unit_thousandths=TENTH)
        for name, spec in (("cloud", cloud), ("tenths", tenths)):
            self.client.of(UnitPool).create(UnitPool(metadata=Metadata(name=name), spec=spec))

    def pods_come_and_go(self) -> None:
        """Bind pods to tenths of devices, and release them, like a scheduler without policies."""
        rng, number = random.Random(self.rng.random()), 0
        client = SyncApiClient(Place(self.socket), tries=1)
        while not self.settling.is_set():
            number += 1
            with suppress(ApiError):
                self._pod(client, f"p{number}", rng)
            time.sleep(rng.uniform(0.05, 0.3))
        client.close()

    def _pod(self, client: SyncApiClient, name: str, rng: random.Random) -> None:
        tenths, device = rng.randint(1, 6), rng.randint(0, 1)
        need = DeviceNeed(kind=DeviceKind.GPU, thousandths=tenths * TENTH)
        request = Request(cpu_milli=10, devices=(need,))
        spec = PodSpec(containers=(Container(name="c", image="image"),), request=request)
        client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))
        share = DeviceShare(number=device, thousandths=tenths * TENTH)
        released = ReleaseRequest(releases=(Release(pod=name, phase=Phase.SUCCEEDED),))
        try:
            client.bind(BindingRequest(bindings=(Binding(pod=name, node="h1", devices=(share,)),)))
        except StaleError:
            return
        except ApiError:
            # The binding may have succeeded: make sure that it does not stay.
            self._until(lambda: self._is_released(client, released), _SETTLE_S)
            return
        self.ledger.set("tenths", name, tenths)
        self.report.bound += 1
        time.sleep(rng.uniform(0.0, 1.0))
        self.ledger.set("tenths", name, 0)
        self._until(lambda: self._is_released(client, released), _SETTLE_S)

    def _is_released(self, client: SyncApiClient, released: ReleaseRequest) -> bool:
        """Release a pod, possibly again after a request whose answer was lost."""
        with suppress(StaleError):
            client.release(released)
        return client.of(Pod).get(released.releases[0].pod).status.node is None

    def look_for_ever(self) -> None:
        """Check the books repeatedly: they must be right at each revision."""
        client = SyncApiClient(Place(self.socket), tries=1)
        while not self.stop.is_set():
            with suppress(ApiError):
                self._look(client)
            time.sleep(0.05)
        client.close()

    def _look(self, client: SyncApiClient) -> None:
        for pool in client.of(UnitPool).list().items:
            name, before = pool.metadata.name, self.report.versions.get(pool.metadata.name, 0)
            if pool.held > pool.spec.units:
                self.report.problems.append(f"{pool.held} units of {name} are held")
            if pool.shares_version < before:
                self.report.problems.append(f"shares of {name} are of version {pool.shares_version}, after {before}")
            self.report.versions[name] = pool.shares_version
        for node in client.of(Node).list().items:
            assert node.value is not None
            node.value.check(node.held)
        self.report.looks += 1

    def kill_something(self) -> None:
        daemon = self.rng.choices((self.api, *self.services), (2, 3, 3))[0]
        daemon.kill()
        time.sleep(self.rng.uniform(0.0, 1.5 * LEASE_S) if daemon is self.api else self.rng.uniform(0.0, 1.0))
        daemon.start()
        self.report.kills["api" if daemon is self.api else "service"] += 1

    def run(self, kills: int, pause_s: float) -> Report:
        """Kill this many times, let everything settle, and check."""
        works: list[Callable[[], None]] = [self.look_for_ever, self.pods_come_and_go]
        threads: list[threading.Thread] = []
        try:
            self.prepare()
            holders = [Holder(self, pool, name, self.rng.randrange(1 << 30)) for pool in POOLS for name in HOLDERS]
            works += [work for holder in holders for work in (holder.work, holder.fence)]
            threads = [threading.Thread(target=work) for work in works]
            for thread in threads:
                thread.start()
            for _ in range(kills):
                time.sleep(self.rng.uniform(0.2, 2 * pause_s))
                self.kill_something()
            self.settling.set()
            if not self._until(self._has_settled, _SETTLE_S):
                self.report.problems.append(f"shares have not settled: {self._shares()}")
        finally:
            self.settling.set()
            self.stop.set()
            for thread in threads:
                thread.join()
            for daemon in (*self.services, self.api):
                daemon.kill(signal.SIGTERM)
            self.client.close()
        for daemon in (self.api, *self.services):
            if "Traceback" in daemon.log:
                text = daemon.log[daemon.log.index("Traceback") :]
                self.report.problems.append(f"{daemon.name} has a stack trace: {text[:2000]}")
        return self.report

    def _shares(self) -> dict[str, dict[str, int]]:
        return {
            pool.metadata.name: {share.holder: share.units for share in pool.shares if not share.leaving}
            for pool in self.client.of(UnitPool).list().items
        }

    def _has_settled(self) -> bool:
        """Return whether all units are assigned, with fair shares."""
        shares = self._shares()
        fair = {"cloud": {"a": 10, "b": 15, "c": 15}, "tenths": {"a": 7, "b": 7, "c": 6}}
        return all(
            sum(shares[pool].values()) == POOLS[pool]
            and all(abs(shares[pool].get(name, 0) - units) <= 2 for name, units in wanted.items())
            for pool, wanted in fair.items()
        )

    def _until(self, condition: Callable[[], bool], settle_s: float) -> bool:
        """Return whether a condition comes true in time; the API server may be down meanwhile."""

        def holds() -> bool:
            with suppress(ApiError):
                return condition()
            return False

        return comes_true(holds, limit_s=settle_s, poll_s=0.1)


if __name__ == "__main__":
    sys.exit(main(__doc__, Soak))
