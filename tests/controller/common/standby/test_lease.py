"""The lease of a pair, one suite over both storages; time stands still until a test moves it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from controller.common.errors import LostLeaseError, StorageError
from controller.common.standby.lease import Lease
from dataplane.leases.place import EtcdPlace
from dataplane.leases.sqlite import SqliteLeases
from dataplane.leases.storage import Entry, LeaseStorage
from tests.controller.apiserver.storage.etcd_process import Etcd

MS = 1_000_000
LEASE_NS = 1000 * MS
WAIT_S = 10.0


class Time:
    """The machine's monotonic time, as the leases see it."""

    now_ns = 0

    def __call__(self) -> int:
        """Return it."""
        return self.now_ns

    def pass_ms(self, ms: int) -> None:
        """Let it pass."""
        self.now_ns += ms * MS


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    """Return the address of an etcd, None without one on the PATH."""
    if shutil.which("etcd") is None:
        yield None
        return
    with Etcd(tmp_path_factory.mktemp("etcd")) as address:
        yield address


@pytest.fixture(params=["sqlite", "etcd"])
def storages(request: pytest.FixtureRequest, etcd: str | None, tmp_path: Path) -> Iterator[list[LeaseStorage]]:
    """Return two processes' views of one storage."""
    if request.param == "sqlite":
        opened: list[LeaseStorage] = [
            SqliteLeases(str(tmp_path / "lease.sqlite"), WAIT_S, StorageError) for _ in range(2)
        ]
    else:
        if etcd is None:
            pytest.skip("needs etcd: apt install etcd-server")
        from dataplane.leases.etcd import EtcdLeases  # noqa: PLC0415 - an extra

        place = EtcdPlace(addresses=(etcd,), root=f"/{secrets.token_hex(8)}")
        opened = [EtcdLeases(place, WAIT_S, StorageError) for _ in range(2)]
    yield opened
    for storage in opened:
        storage.close()


@pytest.fixture
def clock() -> Time:
    """Return the time of all leases of a test."""
    return Time()


def lease_on(storage: LeaseStorage, holder: str, clock: Time) -> Lease:
    """Return a candidate's view of the lease."""
    lease = Lease(storage, "paths", holder=holder, address=f"unix:{holder}", lease_ns=LEASE_NS, now_ns=clock)
    lease.stand()
    return lease


@pytest.fixture
def pair(storages: list[LeaseStorage], clock: Time) -> tuple[Lease, Lease]:
    """Return an active holder and a standby that has seen it."""
    active, standby = (lease_on(storage, holder, clock) for storage, holder in zip(storages, "ab", strict=True))
    active.step()
    standby.step()
    return active, standby


class Failing(LeaseStorage):
    """A storage that fails on demand."""

    def __init__(self, storage: LeaseStorage) -> None:
        self._storage, self.is_away = storage, False

    def read(self, keys: object, *, after: int = 0) -> dict[str, Entry]:
        """Read, or fail."""
        self._check()
        return self._storage.read(keys, after=after)  # type: ignore[arg-type]

    def below(self, prefix: str) -> dict[str, Entry]:
        """Read, or fail."""
        self._check()
        return self._storage.below(prefix)

    def write(self, changes: object, expected: object, *, durable: bool = False) -> int | None:
        """Write, or fail."""
        self._check()
        return self._storage.write(changes, expected, durable=durable)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close it."""

    def _check(self) -> None:
        if self.is_away:
            raise StorageError("it is away")


def test_keys_below_a_prefix_are_listed(storages: list[LeaseStorage]) -> None:
    one, other = storages
    revision = one.write({"c/a": b"1", "c/b": b"2", "c": b"3", "d/a": b"4", "C/a": b"5", "c%a": b"6"}, {})
    assert revision is not None
    assert other.below("c/") == {"c/a": Entry(b"1", revision), "c/b": Entry(b"2", revision)}
    assert other.below("e/") == {}


def test_one_is_active_and_the_other_knows_it(pair: tuple[Lease, Lease]) -> None:
    active, standby = pair
    assert active.check() == active.status().token
    assert (standby.token, standby.status().active_holder, standby.status().active_address) == (None, "a", "unix:a")
    with pytest.raises(LostLeaseError, match="lease paths: b does not hold it"):
        standby.check()


def test_renewals_keep_the_lease_and_its_token(pair: tuple[Lease, Lease], clock: Time) -> None:
    active, standby = pair
    token = active.check()
    for _ in range(20):
        clock.pass_ms(200)
        active.step()
        standby.step()
    assert active.check() == token
    assert standby.token is None


def test_silent_holder_stops_before_the_other_begins(pair: tuple[Lease, Lease], clock: Time) -> None:
    active, standby = pair
    token = active.check()
    both = []
    for _ in range(12):
        clock.pass_ms(100)
        standby.step()
        both.append((active.token is not None, standby.token is not None))
    assert (True, True) not in both
    assert both[6] == (True, False)  # 700 ms
    assert both[8] == (False, False)  # the margin
    assert both[-1] == (False, True)
    assert standby.check() > token


def test_woken_holder_cannot_write(storages: list[LeaseStorage], clock: Time) -> None:
    # Its clock stands still: it has looked at it just before it was stopped, and the transaction's condition is left.
    stopped, standby = lease_on(storages[0], "a", Time()), lease_on(storages[1], "b", clock)
    stopped.step()
    stopped.save({"routes": b"old"})
    standby.step()
    clock.pass_ms(1000)
    standby.step()
    standby.save({"routes": b"new"})
    assert stopped.token is not None
    with pytest.raises(LostLeaseError, match="lease paths: a does not hold it"):
        stopped.save({"routes": b"old again"})
    found = standby.load("routes")
    assert found is not None
    assert found.value == b"new"
    assert stopped.is_over


def test_woken_holder_does_not_renew(pair: tuple[Lease, Lease], clock: Time) -> None:
    active, standby = pair
    clock.pass_ms(5000)
    standby.step()
    active.step()
    assert (active.token, active.is_over) == (None, True)
    assert standby.check() == standby.status().token


def test_late_answer_renews_nothing(storages: list[LeaseStorage], clock: Time) -> None:
    class Slow(Failing):
        """Answers after the lease's end."""

        def _check(self) -> None:
            clock.pass_ms(self.is_away * 900)

    storage = Slow(storages[0])
    lease = lease_on(storage, "a", clock)
    lease.step()
    lease.check()
    storage.is_away = True
    lease.step()
    assert (lease.token, lease.is_over) == (None, True)


def test_released_lease_is_taken_at_once(pair: tuple[Lease, Lease]) -> None:
    active, standby = pair
    token = active.check()
    active.release()
    standby.step()
    assert standby.check() > token
    assert (active.token, active.is_over) == (None, True)


def test_standby_that_slept_does_not_take_it(pair: tuple[Lease, Lease], clock: Time) -> None:
    active, standby = pair
    for _ in range(6):
        clock.pass_ms(200)
        active.step()
    standby.step()  # its last look was more than the lease's duration ago, and the holder is alive
    assert standby.token is None


def test_only_candidates_take_it(storages: list[LeaseStorage], clock: Time) -> None:
    lease = Lease(storages[0], "paths", holder="a", address="", lease_ns=LEASE_NS, now_ns=clock)
    lease.step()
    assert lease.token is None
    lease.stand()
    lease.step()
    assert lease.token is not None


def test_one_of_many_takes_it(storages: list[LeaseStorage], clock: Time) -> None:
    leases = [lease_on(storages[number % 2], str(number), clock) for number in range(8)]
    start = Barrier(len(leases))

    def take(lease: Lease) -> None:
        start.wait()
        lease.step()

    with ThreadPoolExecutor(len(leases)) as threads:
        list(threads.map(take, leases))
    assert sum(lease.token is not None for lease in leases) == 1


def test_values_are_read_only_once_changed(pair: tuple[Lease, Lease]) -> None:
    active, standby = pair
    revision = active.save({"routes": b"1"})
    assert standby.load("routes") == Entry(b"1", revision)
    assert standby.load("routes", after=revision) is None
    newer = active.save({"routes": b"2"})
    assert standby.load("routes", after=revision) == Entry(b"2", newer)


def test_holder_survives_a_short_outage_only(storages: list[LeaseStorage], clock: Time) -> None:
    storage = Failing(storages[0])
    lease = lease_on(storage, "a", clock)
    lease.step()
    token = lease.check()
    storage.is_away = True
    clock.pass_ms(500)
    lease.step()
    assert (lease.check(), lease.status().problem) == (token, "it is away")
    storage.is_away = False
    lease.step()
    clock.pass_ms(700)
    assert (lease.check(), lease.status().problem) == (token, "")
    storage.is_away = True
    clock.pass_ms(100)
    lease.step()
    assert lease.is_over


def test_foreign_value_is_an_error_in_one_line(storages: list[LeaseStorage], clock: Time) -> None:
    storages[0].write({"paths/holder": b"\xc1"}, {})
    lease = lease_on(storages[0], "a", clock)
    lease.step()
    assert lease.status().problem.startswith("lease paths: cannot decode its holder: ")
    assert lease.token is None
