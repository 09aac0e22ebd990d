"""Rounds over any pool and any reports: the server accepts the decisions, and no report breaks it."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from controller.apiserver.registry.pools import shares as server
from controller.apiserver.registry.pools.shares import UnitShares
from controller.apiserver.resources import Metadata, Node, UnitPool
from controller.apiserver.resources.hardware import Device, DeviceShare, Hardware
from controller.apiserver.resources.node import NodeSpec, Share
from controller.apiserver.resources.unit_pool import (
    Claim,
    ControlForm,
    ControlRule,
    ControlScheme,
    HolderStatus,
    PoolControl,
    UnitHolding,
    UnitPoolSpec,
    UnitPoolStatus,
)
from controller.balance.rules import IntervalTable, Row
from controller.balance.serving.deciding import Round, decide
from controller.balance.serving.wanting import Memory
from controller.balance.settings import BalanceSettings, MovingSettings
from dataplane.topology.values import DeviceKind

SECOND_NS = 1_000_000_000
HOLDERS = ("a", "b", "c", "d")
SETTINGS = BalanceSettings()


def pool_of(shares: dict[str, int], *, wants: dict[str, int] | None = None, **spec: object) -> UnitPool:
    """Return a pool with shares from 1 s and holders' reports of their wants at 10 s."""
    holders = tuple(
        HolderStatus(holder=name, wants=some, reported_ns=10 * SECOND_NS) for name, some in (wants or {}).items()
    )
    return UnitPool(
        metadata=Metadata(name="gpus"),
        spec=UnitPoolSpec(**{"units": 100} | spec),  # type: ignore[arg-type]
        status=UnitPoolStatus(holders=holders),
        shares=tuple(UnitHolding(holder=name, units=some, since_ns=SECOND_NS) for name, some in shares.items() if some),
    )


def after(pool: UnitPool, now_s: float = 11.0, settings: BalanceSettings = SETTINGS, moves: int = 1000) -> Round:
    return decide(pool, None, {}, round(now_s * SECOND_NS), settings, moves=moves)


def units(decided: Round) -> dict[str, tuple[int, int]] | None:
    return None if decided.shares is None else {share.holder: (share.units, share.leaving) for share in decided.shares}


def test_paused_pool_stays_and_reports_it() -> None:
    decided = after(pool_of({"a": 50, "b": 50}, wants={"a": -10, "b": 10}, paused=True))
    assert (decided.shares, decided.status.reason) == (None, "paused: nothing moves")


def test_a_unit_that_moved_stays_for_a_while() -> None:
    pool = pool_of({"a": 50, "b": 50}, wants={"a": -10, "b": 10}, hold_s=60.0)
    held = replace(pool, shares=tuple(replace(share, grown_ns=SECOND_NS) for share in pool.shares))
    assert after(held).shares is None
    assert after(held).status.control[0].reason == "keeps recently moved units"
    old = replace(
        held,
        status=replace(
            held.status, holders=tuple(replace(holder, reported_ns=62 * SECOND_NS) for holder in held.status.holders)
        ),
    )
    assert units(after(old, 63.0)) == {"a": (40, 0), "b": (60, 0)}


def test_silence_is_counted_from_when_holders_could_be_heard() -> None:
    pool = pool_of({"a": 50}, wants={"a": 0}, lease_s=30.0)
    now_ns = 100 * SECOND_NS
    held = decide(pool, None, {}, now_ns, SETTINGS, moves=10, heard_ns=80 * SECOND_NS)
    assert (held.shares, held.silent) == (None, ("a",))
    gone = decide(pool, None, {}, now_ns, SETTINGS, moves=50, heard_ns=60 * SECOND_NS)
    assert gone.shares == ()


def test_stale_report_or_one_before_the_last_change_is_ignored() -> None:
    pool = pool_of({"a": 50}, wants={"a": 10})
    assert units(after(pool, 15.0)) == {"a": (60, 0)}
    assert after(pool, 25.0).shares is None
    changed = replace(pool, shares=(replace(pool.shares[0], since_ns=10 * SECOND_NS),))
    assert after(changed, 15.0).shares is None
    settling = replace(pool, spec=replace(pool.spec, control=PoolControl(settle_s=9.5)))
    assert after(settling, 15.0).shares is None


def test_devices_held_by_pods_are_no_capacity() -> None:
    devices = (Device(number=0, kind=DeviceKind.GPU), Device(number=1, kind=DeviceKind.GPU))
    pod = Share(pod="p", uid="1", epoch=1, devices=(DeviceShare(number=0, thousandths=700),))
    node = Node(metadata=Metadata(name="h1"), spec=NodeSpec(hardware=Hardware(devices=devices)), shares=(pod,))
    pool = pool_of({}, wants={"a": 20}, node="h1", unit_thousandths=100, claims=(Claim(holder="a"),))
    decided = decide(pool, node, {}, 11 * SECOND_NS, SETTINGS, moves=100)
    assert (decided.capacity, units(decided)) == (13, {"a": (13, 0)})
    lost = decide(pool, None, {}, 11 * SECOND_NS, SETTINGS, moves=100)
    assert (lost.shares, lost.status.reason) == (None, "Node h1 does not exist")


def test_idle_units_are_freed_if_the_pool_frees_to_a_load() -> None:
    def shares_after(load: float, control: PoolControl) -> dict[str, tuple[int, int]] | None:
        report = HolderStatus(holder="a", bus=load, load=load, reported_ns=10 * SECOND_NS)
        pool = pool_of({"a": 80}, control=control)
        return units(after(replace(pool, status=UnitPoolStatus(holders=(report,)))))

    frees = PoolControl(asks_from_load=0.9, frees_to_load=0.8)
    assert shares_after(0.25, frees) == {"a": (25, 0)}
    assert shares_after(0.8, frees) is None
    assert shares_after(0.25, PoolControl()) is None


def test_frees_to_load_must_be_below_asks_from_load() -> None:
    for asks in (0.0, 0.8):
        with pytest.raises(ValueError, match="frees_to_load must be below asks_from_load"):
            PoolControl(asks_from_load=asks, frees_to_load=0.8)


def test_meaningless_report_is_reported_and_moves_nothing() -> None:
    report = HolderStatus(holder="a", bus=1.0, load=0.5, precision="int9", reported_ns=10 * SECOND_NS)
    pool = pool_of({"a": 50})
    decided = after(replace(pool, status=UnitPoolStatus(holders=(report,))))
    assert decided.shares is None
    assert "unknown precision 'int9'; known: int4" in decided.status.control[0].reason


def outputs(pool: UnitPool, errors: list[float], settings: BalanceSettings = SETTINGS) -> list[float | None]:
    """Return the outputs of holder `a`'s controller for reports with these errors, a second apart."""
    memories: dict[str, Memory] = {}
    collected: list[float | None] = []
    for number, error in enumerate(errors):
        at_ns = (10 + number) * SECOND_NS
        report = HolderStatus(holder="a", bus=0.5 + error / 2, load=0.5 - error / 2, reported_ns=at_ns)
        seen = replace(pool, status=UnitPoolStatus(holders=(report,)))
        made = decide(seen, None, memories, at_ns, settings, moves=1000)
        memories = dict(made.memories)
        collected.append(made.status.control[0].output)
    return collected


def test_no_integral_grows_by_units_that_are_not_to_be_had() -> None:
    """While the pool is exhausted the integral holds, so u turns as soon as the error does."""
    control = PoolControl(form=ControlForm.PI, kp=0.5, ki=0.1)
    short = pool_of({"a": 50, "b": 50}, control=control)
    assert outputs(short, [-0.5, -0.5, -0.5, 0.5]) == [-0.3, -0.35, -0.35, 0.25]
    free = pool_of({"a": 50}, control=control)
    assert outputs(free, [-0.5, -0.5, -0.5]) == [-0.3, -0.35, -0.4]


def test_the_table_is_configuration() -> None:
    rows = (
        Row(interval="[-1, -0.2)", sub_units=7),
        Row(interval="[-0.2, 0.2]"),
        Row(interval="(0.2, 1]", sub_units=-5),
    )
    settings = BalanceSettings(table=IntervalTable(rows=rows))
    report = HolderStatus(holder="a", bus=1.0, load=0.5, reported_ns=10 * SECOND_NS)
    pool = replace(pool_of({"a": 50}), status=UnitPoolStatus(holders=(report,)))
    assert units(after(pool, settings=settings)) == {"a": (45, 0)}
    assert units(after(pool)) == {"a": (48, 0)}


def test_reports_count_at_once_after_the_clock_is_set_back() -> None:
    """As do the controller's samples, and units that moved just before the clock was set."""
    control = PoolControl(form=ControlForm.PI, kp=0.5, ki=0.1, rule=ControlRule.PLATFORM)
    pool, hour_ns = pool_of({"a": 50}, control=control, hold_s=60.0), 3600 * SECOND_NS
    pool = replace(pool, shares=(replace(pool.shares[0], since_ns=hour_ns, grown_ns=hour_ns),))
    memories: dict[str, Memory] = {}
    collected = []
    for at_ns in (hour_ns + 30 * SECOND_NS, 10 * SECOND_NS, 11 * SECOND_NS, 71 * SECOND_NS):
        pool = server.report(pool, HolderStatus(holder="a", bus=0.75, load=0.25), at_ns)
        made = decide(pool, None, memories, at_ns + 1, SETTINGS, moves=1000)
        memories = dict(made.memories)
        collected.append((made.status.control[0].output, units(made)))
        again = decide(pool, None, memories, at_ns + 1, SETTINGS, moves=1000)
        assert dict(again.memories) == memories
    assert [output for output, _ in collected] == pytest.approx([0.3, 0.35, 0.4, 0.45])
    assert [shares is None for _, shares in collected] == [True, True, True, False]
    assert pool.shares[0].grown_ns < 10 * SECOND_NS


def drawn_pool(rng: random.Random) -> UnitPool:
    claims = tuple(
        Claim(
            holder=name,
            least=(least := rng.randint(0, 5)),
            most=rng.choice([None, least + rng.randint(0, 40)]),
            priority=rng.randint(0, 1),
            weight=rng.choice([0.5, 1.0, 3.0]),
        )
        for name in rng.sample(HOLDERS, rng.randint(1, 4))
    )
    control = PoolControl(
        form=rng.choice(list(ControlForm)),
        kp=rng.choice([0.0, 1.0, 1000.0]),
        ki=rng.choice([0.0, 0.3]),
        kd=rng.choice([0.0, 1.0]),
        scheme=rng.choice(list(ControlScheme)),
        rule=rng.choice(list(ControlRule)),
    )
    spec = UnitPoolSpec(
        units=rng.randint(0, 60),
        claims=claims,
        control=control,
        lease_s=rng.choice([0.0, 3.0]),
        hold_s=rng.choice([0, 2]),
    )
    return UnitPool(metadata=Metadata(name="gpus"), spec=spec)


def drawn_report(rng: random.Random, pool: UnitPool, holder: str) -> HolderStatus:
    have = next((share.units for share in pool.shares if share.holder == holder), 0)
    return HolderStatus(
        holder=holder,
        wants=rng.choice([None, None, rng.randint(-10, 10), 1_000_000, -1_000_000]),
        holds=rng.choice([None, rng.randint(0, have)]),
        bus=rng.choice([None, 0.0, 1.0, rng.random()]),
        load=rng.choice([None, 0.0, 1.0, 5e-324, rng.random()]),
        precision=rng.choice(["", "int8", "fp64", "x"]),
        frequency_mhz=rng.choice([None, 0.0, 5e-324, 1e9, 1000.0]),
    )


@pytest.mark.parametrize("seed", range(60))
def test_server_accepts_decisions_on_any_reports(seed: int) -> None:
    rng = random.Random(seed)
    pool, now_ns = drawn_pool(rng), SECOND_NS
    memories: dict[str, Memory] = {}
    settings = BalanceSettings(stale_s=2.0, moving=MovingSettings(margin=rng.choice([0.0, 0.2])))
    for _ in range(40):
        now_ns += rng.randint(1, SECOND_NS)
        for holder in rng.sample(pool.holders, rng.randint(0, len(pool.holders))):
            pool = server.report(pool, drawn_report(rng, pool, holder), now_ns)
        decided = decide(pool, None, memories, now_ns, settings, moves=rng.choice([0, 3, 1000]))
        memories = dict(decided.memories)
        assert UnitPoolStatus(**{name: getattr(decided.status, name) for name in decided.status.__struct_fields__})
        pool = replace(pool, status=replace(decided.status, holders=pool.status.holders))
        if decided.shares is not None:
            pool, _ = server.share(pool, None, UnitShares(shares=decided.shares), now_ns)
        assert pool.held <= pool.spec.units
