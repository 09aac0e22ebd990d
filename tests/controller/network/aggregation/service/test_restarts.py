"""Restarts of the controller that trainings do not notice, and job databases that cannot be used."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import structs

from controller.common.errors import JobError, LostLeaseError, StorageError
from controller.common.standby.lease import Lease
from controller.network.aggregation.jobs import RunningJob
from controller.network.aggregation.records import PlaceRecords
from controller.network.aggregation.service.job_state import InstalledJob, Notify
from controller.network.aggregation.service.rendezvous import Rendezvous
from controller.network.aggregation.service.seats import JobSeats, Seat, SeatRecords
from controller.network.aggregation.service.server import JobService
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.storage import FileStorage, PairStorage, default_database
from controller.network.daemon import Daemon
from controller.network.daemon_settings import DaemonSettings
from controller.network.intents import Worker
from dataplane.allreduce.jobs.messages import Admitted, Downward, Ended, Hello, Refused, View, Waiting
from dataplane.allreduce.membership import Membership
from dataplane.clock import VirtualClock
from dataplane.config import loads
from dataplane.errors import MillraceError
from dataplane.leases.sqlite import SqliteLeases
from dataplane.topology.families import leaf_spine
from tests.controller.network.aggregation.service.random_workers import DictStorage
from tests.controller.network.aggregation.service.serving_jobs import (
    BOUND_S,
    MS,
    SETTINGS,
    RunningService,
    run_service,
)
from tests.controller.network.aggregation.service.test_server import folder
from tests.controller.network.aggregation.writable_switches import Lab, running
from tests.waiting import wait_until

__all__ = ["folder"]

S = 1_000_000_000
NONCE = 0x1122334455667788
FIRST_LAYOUT = {
    "generation": "AQ==",
    "newest": "AQ==",
    "placed/1": (
        "gqZwbGFjZWSDo2pvYoambnVtYmVyAad3b3JrZXJzkoKkaG9zdKJoMah1ZHBfcG9ydM22F4KkaG9zdKJoMqh1ZHBfcG9ydM2WuKhj"
        "YXBhY2l0eQKmd2luZG93EKZzZXJ2ZXLApW5vbmNlzw5ebWeh99m2pHRyZWWCpHJvb3SlbGVhZjGoY2hpbGRyZW6SomgxomgypmJs"
        "b2Nrc4GlbGVhZjGCpWZpcnN0AKVjZWxscyCnbWVtYmVyc4KlZXBvY2gBp3dvcmtlcnOSomgxomgy"
    ),
    "seats/1": (
        "i6ZudW1iZXIBpWhlbGxvjaNqb2Kjam9ipGhvc3SiaDKldG9rZW6wYjYwYWIwODE1NWYwYjI1Nad3b3JrZXJzAqh1ZHBfcG9ydM2W"
        "uKtkZWFkbGluZV9uc88AAAAG/COsAKZ3aW5kb3fAqGNhcGFjaXR5wKpib3VuZGFyaWVzwqZudW1iZXLApnNlcnZlcsCuaXNfbWFp"
        "bl9zZXJ2ZXLCq2NvbnZlcmdlbmNlwKZ3aW5kb3cQqGNhcGFjaXR5AqRzaXplAqdtZW1iZXJzkoSlaGVsbG+No2pvYqNqb2KkaG9z"
        "dKJoMqV0b2tlbrBiNjBhYjA4MTU1ZjBiMjU1p3dvcmtlcnMCqHVkcF9wb3J0zZa4q2RlYWRsaW5lX25zzwAAAAb8I6wApndpbmRv"
        "d8CoY2FwYWNpdHnAqmJvdW5kYXJpZXPCpm51bWJlcsCmc2VydmVywK5pc19tYWluX3NlcnZlcsKrY29udmVyZ2VuY2XApXN0YXJ0"
        "wKluZXdjb21lcnOQrWxlYXZlc19iZWZvcmXAhKVoZWxsb42jam9io2pvYqRob3N0omgxpXRva2VusDcwNWI3NWYxZTQ3NGFiOGGn"
        "d29ya2VycwKodWRwX3BvcnTNtherZGVhZGxpbmVfbnPPAAAABvwjrACmd2luZG93wKhjYXBhY2l0ecCqYm91bmRhcmllc8KmbnVt"
        "YmVywKZzZXJ2ZXLArmlzX21haW5fc2VydmVywqtjb252ZXJnZW5jZcClc3RhcnTAqW5ld2NvbWVyc5CtbGVhdmVzX2JlZm9yZcCr"
        "bWFpbl9zZXJ2ZXLApnNlcnZlcsCpbmV3Y29tZXJzkKxuZXdjb21lcnNfYXTAp3JlbW92ZWSQ"
    ),
}
"""A file of layout 1 as the first version wrote it: two workers at leaf1, epoch 1."""


def keeping(folder: Path) -> JobSettings:
    return structs.replace(SETTINGS, database=str(folder / "jobs.db"), return_ns=20_000 * MS)


def sums(members: list[Membership]) -> list[float]:
    futures = [member.reducer.all_reduce(np.ones(700, np.float32)) for member in members]
    return [float(future.result(BOUND_S)[0]) for future in futures]


def back(members: list[Membership]) -> None:
    wait_until(lambda: not any(member._connection.problem for member in members), "a worker does not return")


def test_training_continues_across_a_restart(folder: Path) -> None:
    with run_service(folder, settings=keeping(folder)) as here:
        members = here.together("h1", "h2", "h3")
        number, epoch = members[0].number, members[0].epoch
        here.stop()
        assert sums(members) == [3.0] * 3
        here.start()
        assert sums(members) == [3.0] * 3
        back(members)
        assert {(member.number, member.epoch, member.failure) for member in members} == {(number, epoch, None)}
        (job,) = here.reconciler.running
        assert (job.number, job.members.epoch, len(job.members.workers)) == (number, epoch, 3)
        members[2].close()
        wait_until(lambda: members[0].members == ("h1", "h2"), "h3 does not leave")
        assert sums(members[:2]) == [2.0] * 2
        assert sums([*members[:2], here.join("h4", 3).result(BOUND_S)]) == [3.0] * 3


def test_worker_that_leaves_during_a_restart_is_let_go(folder: Path) -> None:
    with run_service(folder, settings=keeping(folder)) as here:
        members = here.together("h1", "h2")
        waiting = members[1].reducer.all_reduce(np.ones(5, np.float32))  # so that h1 is still needed
        closing_ = here._pool.submit(members[0].close)
        wait_until(lambda: members[0]._leaves_before is not None, "h1 does not leave")
        here.stop()
        here.start()
        closing_.result(BOUND_S)
        assert float(waiting.result(BOUND_S)[0]) == 1.0


def admitted_job(members: tuple[str, ...] = ("h1", "h2", "h3")) -> tuple[JobSeats, InstalledJob]:
    hellos = [Hello("job", host, f"secret of {host}", 3, 20_000, 60 * S) for host in members]
    seats = JobSeats(7, hellos[0], 16, 3, 3, tuple(map(Seat, hellos)))
    return seats, InstalledJob(7, 4, 16, 3, dict.fromkeys(members, "10.0.1.254"), "10.0.1.254", NONCE)


def adopted(settings: JobSettings = SETTINGS) -> Rendezvous:
    machine = Rendezvous(settings, [f"h{number}" for number in range(1, 7)], S)
    assert machine.adopt(1, [admitted_job()], [], 0) == []
    return machine


def told(machine: Rendezvous, hello: Hello, now_ns: int = 0) -> list[Downward]:
    actions = machine.connect(hello, now_ns)
    return [action.message for action in actions if isinstance(action, Notify) and action.token == hello.token]


def test_seat_is_kept_for_the_worker_with_its_token() -> None:
    machine = adopted(structs.replace(SETTINGS, return_ns=15 * S))
    impostor = Hello("job", "h1", "a guess", 3, 30_000, 60 * S)
    assert told(machine, impostor) == [Waiting(("h1", "h2", "h3"), 3)]
    assert told(machine, replace(impostor, token="another", number=7)) == [Ended("h1 has left job job", removed=True)]
    for host in ("h1", "h2", "h3"):
        (view,) = told(machine, Hello("job", host, f"secret of {host}", 3, 20_000, 60 * S, number=7), S)
        assert isinstance(view, View)
        assert (view.number, view.epoch, view.members) == (7, 4, ("h1", "h2", "h3"))
    refused = [event.message for event in machine.tick(2 * S) if isinstance(event, Notify)]
    assert refused in ([], [Refused("job job: h1 already has a worker in it")])


def test_worker_that_does_not_return_is_removed_and_replaced() -> None:
    machine = adopted(structs.replace(SETTINGS, return_ns=15 * S))
    for host in ("h1", "h2"):
        told(machine, Hello("job", host, f"secret of {host}", 3, 20_000, 60 * S, number=7))
    latecomer = Hello("job", "h3", "a new process", 3, 30_000, 60 * S)
    assert told(machine, latecomer) == [Waiting(("h1", "h2", "h3"), 3)]
    assert machine.due_ns() == 15 * S
    assert machine.tick(14 * S) == []
    machine.tick(15 * S)
    (job,) = machine.jobs
    assert list(job.members) == ["h1", "h2"]
    assert list(job.joiners) == ["h3"]
    assert job.removed["secret of h3"].reason == (
        "h3 was removed from job job: it has not returned within 15.0 s of the controller's restart"
    )


def test_slow_disk_costs_no_worker_its_lease() -> None:
    """While the controller waits for it, heartbeats wait in the connection."""
    machine = adopted(structs.replace(SETTINGS, lease_ns=5 * S))
    for host in ("h1", "h2", "h3"):
        told(machine, Hello("job", host, f"secret of {host}", 3, 20_000, 60 * S, number=7), S)
    machine.excuse(4 * S, 9 * S)
    assert machine.tick(9 * S) == []
    assert machine.due_ns() == 10 * S
    machine.tick(10 * S)
    assert not machine.jobs


def test_admission_that_was_lost_is_repeated() -> None:
    machine = adopted()
    messages = told(machine, Hello("job", "h1", "secret of h1", 3, 20_000, 60 * S))
    assert [type(message) for message in messages] == [Admitted, View]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("seats/7", b"\xff\x00", "cannot decode seats/7: "),
        ("placed/7", b"\x80", "cannot decode placed/7: Object missing required field `placed`: move it away"),
        ("newest", b"\xa1x", r"cannot decode newest: Expected `int`, got `str`: move it away"),
    ],
)
def test_invalid_entry_is_one_line_and_nothing_is_adopted(folder: Path, key: str, value: bytes, problem: str) -> None:
    settings = keeping(folder)
    with run_service(folder, settings=settings) as here:
        here.together("h1", "h2")
    with closing(sqlite3.connect(folder / "jobs.db")) as connection, connection:
        connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))
    storage = FileStorage(str(folder / "jobs.db"))
    before = storage.load()

    def read() -> None:
        PlaceRecords(storage).read(before)
        SeatRecords(storage).read(before)

    with pytest.raises(JobError, match=rf"^{re.escape(str(folder))}/jobs.db: {problem}") as caught:
        read()
    assert "\n" not in str(caught.value)
    assert storage.load() == before
    storage.close()


def test_file_of_another_kind_or_layout_is_refused(folder: Path) -> None:
    path = folder / "jobs.db"
    path.write_bytes(b"certainly no database" * 100)
    with pytest.raises(JobError, match=r"jobs.db: cannot open the job database: file is not a database$"):
        FileStorage(str(path))
    path.unlink()
    FileStorage(str(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=9")
    with pytest.raises(JobError, match=r"the job database has layout 9, this version needs 1: move it away$"):
        FileStorage(str(path))


def test_failing_disk_is_logged_once_and_made_up_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "jobs.db"
    storage = FileStorage(str(path))
    storage.save({"a": b"1", "b": b"1"})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'disk full'); END")
        connection.commit()
        storage.save({"a": b"2"})
        storage.save({"b": None})
        assert storage.load() == {"a": b"1", "b": b"1"}
        connection.execute("DROP TRIGGER full")
        connection.commit()
    storage.save({"c": b"3"})
    assert storage.load() == {"a": b"2", "c": b"3"}
    storage.close()
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        f"{path}: cannot write the job database: disk full: jobs would not survive a restart of the controller",
        f"{path}: jobs are kept again",
    ]


def test_database_of_the_first_layout_is_adopted(folder: Path) -> None:
    """A later version must read what an earlier one has written, as a controller is upgraded in a running training."""
    path = folder / "jobs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
        rows = [(key, b64decode(value)) for key, value in FIRST_LAYOUT.items()]
        connection.executemany("INSERT INTO entries VALUES (?, ?)", rows)
        connection.execute("PRAGMA user_version=1")
    with run_service(folder, settings=keeping(folder)) as here:
        (job,) = here.reconciler.running
        assert (job.number, job.members.epoch, sorted(job.members.workers)) == (1, 1, ["h1", "h2"])
        assert job.placed.job.nonce == 1035385256208226742
        assert (job.placed.tree.root, job.placed.job.window, job.placed.job.capacity) == ("leaf1", 16, 2)
        rendezvous = here.service._rendezvous
        (view,) = told(rendezvous, Hello("job", "h1", "705b75f1e474ab8a", 2, 20_000, S, number=1))
        assert isinstance(view, View)
        assert view.members == ("h1", "h2")


@contextmanager
def leases(folder: Path) -> Iterator[tuple[Lease, Lease, list[int]]]:
    """Yield the leases of two controllers, and the time in ns that both read."""
    now = [0]
    with SqliteLeases(str(folder / "lease.db"), 1.0, StorageError) as storage:

        def lease(holder: str) -> Lease:
            made = Lease(storage, "controller", holder=holder, address="", lease_ns=S, now_ns=lambda: now[0])
            made.stand()
            return made

        yield lease("first"), lease("second"), now


def test_pair_keeps_jobs_with_the_lease_and_fences(folder: Path) -> None:
    with leases(folder) as (first, second, now):
        first.step()
        mine = PairStorage(first)
        assert mine.load() == {}
        mine.save({"placed/1": b"a", "seats/1": b"b", "newest": b"1"})
        mine.save({"placed/1": None, "placed/2": b"c"})
        mine.save({"seats/1": b"d"})
        second.step()
        now[0] += 2 * S
        second.step()
        theirs = PairStorage(second)
        assert theirs.load() == {"placed/2": b"c", "seats/1": b"d", "newest": b"1"}
        with pytest.raises(LostLeaseError, match="lease controller: first does not hold it"):
            mine.save({"placed/2": None})
        theirs.save({"seats/1": None})
        assert PairStorage(second).load() == {"placed/2": b"c", "newest": b"1"}


def test_other_controller_takes_over_with_the_jobs(folder: Path) -> None:
    both = f"unix:{folder}/jobs,unix:{folder}/other"
    with leases(folder) as (first, second, now), run_service(folder, storage=lambda: PairStorage(first)) as here:
        other = RunningService(f"unix:{folder}/other", here.server, 9, SETTINGS, None, lambda: PairStorage(second))
        try:
            first.step()
            here.adopt()
            other.start()
            members = here.together("h1", "h2", address=both)
            with pytest.raises(MillraceError, match="this controller stands by"):
                other.jobs()
            here.stop()
            assert sums(members) == [2.0] * 2
            second.step()
            now[0] += 2 * S
            second.step()
            other.adopt()
            back(members)
            assert sums(members) == [2.0] * 2
            (row,) = other.jobs(both)
            assert (row.number, row.epoch, len(row.members)) == (members[0].number, 1, 2)
            assert [member.failure for member in members] == [None, None]
        finally:
            for member in here._made:
                member.close()
            other.close()


def with_service(entries: Mapping[str, bytes], services: list[JobService]) -> Callable[[Daemon], None]:
    def adopt(daemon: Daemon) -> None:
        assert daemon.jobs is not None
        settings = JobSettings(listen="127.0.0.1:0")
        topology, storage = daemon.features.topology, DictStorage(entries)
        services.append(JobService(settings, topology, daemon.jobs, VirtualClock(), change_ns=S, storage=storage))
        services[-1].adopt()

    return adopt


def entries_of(job: RunningJob) -> dict[str, bytes]:
    """Return what a storage says of a job that is seated and placed."""
    storage = DictStorage()
    PlaceRecords(storage).keep(job, job.number)
    hellos = [Hello("job", worker.host, worker.host, 2, worker.udp_port, S) for worker in job.placed.job.workers]
    seats = JobSeats(job.number, hellos[0], 8, 2, 2, tuple(map(Seat, hellos)))
    return storage.entries | {f"seats/{job.number}": msgspec.msgpack.encode(seats)}


def test_outdated_record_ends_the_job_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Switches with a newer epoch show that the file is a copy of earlier days."""
    lab, services, entries = Lab(leaf_spine(1, 1, 4)), list[JobService](), dict[str, bytes]()
    reason = "switch leaf1 holds its epoch 2, not 1: the controller's record of it is outdated"

    async def earlier() -> None:
        async with running(lab) as run:
            job = await run.of(run.jobs.create([Worker("h1", 1), Worker("h2", 1)], window=8, capacity=2))
            entries.update(entries_of(job))
            await run.of(run.jobs.leave(job.number, "h2"))

    async def later() -> None:
        async with running(lab, before=with_service(entries, services)) as run:
            await run.until(lambda: not run.jobs.running and not run.about(1))
            (job,) = services[0].rows()
            assert job.reason == reason

    asyncio.run(earlier())
    caplog.set_level(logging.INFO, "millrace.jobs")
    caplog.clear()
    asyncio.run(later())
    lines = [record.getMessage() for record in caplog.records if "ended" in record.getMessage()]
    assert lines == [f"job job has ended: {reason}"]


def test_job_of_another_topology_ends_and_others_stay() -> None:
    lab, services, entries = Lab(leaf_spine(1, 1, 4)), list[JobService](), dict[str, bytes]()

    async def scene() -> None:
        async with running(Lab(leaf_spine(1, 1, 6))) as run:
            for number, hosts in ((1, ("h5", "h6")), (2, ("h1", "h2"))):
                workers = [Worker(host, 1) for host in hosts]
                job = await run.of(run.jobs.create(workers, window=8, capacity=2))
                assert job.number == number
                entries.update(entries_of(job))
        async with running(lab, before=with_service(entries, services)) as run:
            assert [job.number for job in run.jobs.running] == [2]
            assert run.about(2)
            assert not run.about(1)
            assert services[0].rows()[-1].reason == "aggregation job 1: there is no host 'h5'"
            assert (await run.of(run.jobs.create([Worker("h3", 1)], window=8, capacity=1))).number == 3

    asyncio.run(scene())


def test_adopted_switches_are_not_written() -> None:
    lab, services, entries = Lab(leaf_spine(1, 2, 3)), list[JobService](), dict[str, bytes]()

    async def scene() -> None:
        async with running(lab) as run:
            workers = [Worker(host, 1) for host in ("h1", "h2", "h4")]
            entries.update(entries_of(await run.of(run.jobs.create(workers, window=8, capacity=3))))
        for switch in lab.switches.values():
            switch.log.clear()
        async with running(lab, before=with_service(entries, services)) as run:
            assert run.jobs.running
            assert not any(switch.log for switch in lab.switches.values())

    asyncio.run(scene())


def test_default_database_outlives_the_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    assert default_database(f"unix:{folder}/jobs.sock") == f"{folder}/jobs.db"
    assert default_database("127.0.0.1:0") == ":memory:"
    assert default_database("10.9.0.1:9560").endswith("/millrace/jobs-9560.db")
    monkeypatch.setenv("STATE_DIRECTORY", "/var/lib/millrace:/var/lib/other")
    assert default_database("plain:10.9.0.1:9560") == "/var/lib/millrace/jobs-9560.db"


def test_pair_with_a_database_of_its_own_is_refused() -> None:
    text = "topology: x\nswitches: {}\nstandby: {sqlite: a.db}\njobs: {database: b.db}\n"
    with pytest.raises(MillraceError, match=r"jobs\.database: with standby jobs are kept with the lease"):
        loads(text, DaemonSettings)
