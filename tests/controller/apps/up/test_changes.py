"""Reload of `millrace up`: what changed settings start, stop, restart, and cannot change."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apps.up.errors import UpError
from controller.apps.up.plan import UpPlan, make_plan
from controller.apps.up.settings import (
    BalanceSection,
    CentreSection,
    DriveSection,
    NodeSection,
    RestartSettings,
    UpSettings,
)
from controller.apps.up.state import StateFolder
from controller.apps.up.supervision.changes import Changes, changes
from controller.balance.running.settings import LoadSettings
from dataplane.config import Strict, load
from dataplane.errors import MillraceError
from dataplane.fabric.live.settings import Time


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateFolder]:
    # pytest's own folder may be too long for sockets in it.
    with tempfile.TemporaryDirectory(prefix="up") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        folder = StateFolder(tmp_path / "state")
        folder.prepare()
        folder.write_settings("leaf-spine", Time.VIRTUAL)
        yield folder


@pytest.fixture
def settings(state: StateFolder) -> UpSettings:
    return load(state.settings, UpSettings)


def started(plan: UpPlan) -> dict[str, Strict]:
    return {daemon.name: daemon.settings for daemon in plan.daemons}


def reloaded(state: StateFolder, old: UpSettings, new: UpSettings) -> Changes:
    before = make_plan(old, state)
    return changes(before, make_plan(new, state), started(before))


def test_nodes_and_centres_come_and_go(state: StateFolder, settings: UpSettings) -> None:
    old = replace(settings, nodes={"h1": NodeSection(), "h2": NodeSection()})
    new = replace(settings, nodes={"h1": NodeSection(), "h3": NodeSection()}, balance=BalanceSection())
    made = reloaded(state, old, new)
    assert (made.added, made.removed, made.restarted) == (("balance", "node-h3"), ("node-h2",), ())
    assert not made.waiting
    assert not made.fixed
    assert [daemon.name for daemon in made.plan.daemons][-2:] == ["node-h1", "node-h3"]
    assert made.lines() == [
        "balance: added to the settings; starts",
        "node-h3: added to the settings; starts",
        "node-h2: removed from the settings; stops",
        "settings reloaded",
    ]


def test_drives_come_and_go_with_their_nodes(state: StateFolder, settings: UpSettings) -> None:
    """A loop is started and stopped beside its node's manager, which runs on."""
    drive = DriveSection(load=LoadSettings(group="/u0"))
    without, with_drive = NodeSection(), NodeSection(drives={"u0": drive})
    old = replace(settings, nodes={"h1": without, "h2": with_drive})
    made = reloaded(state, old, replace(settings, nodes={"h1": NodeSection(drives={"u1": drive}), "h2": without}))
    assert (made.added, made.removed, made.waiting) == (("drive-u1",), ("drive-u0",), {})
    other = NodeSection(drives={"u0": replace(drive, interval_s=0.5)})
    assert reloaded(state, old, replace(old, nodes={"h1": without, "h2": other})).waiting == {"drive-u0": ("interval",)}
    with pytest.raises(UpError, match=r"nodes\.h2\.drives\.u0: node h1 has a unit of that name"):
        reloaded(state, old, replace(settings, nodes={"h1": with_drive, "h2": with_drive}))


def test_first_centre_restarts_the_scheduler(state: StateFolder, settings: UpSettings) -> None:
    """A scheduler without centres dispatches no tasks, and does not start to on SIGHUP."""
    east = replace(settings, centres={"east": CentreSection()})
    both = replace(settings, centres={"east": CentreSection(), "west": CentreSection()})
    assert reloaded(state, settings, east).restarted == ("scheduler",)
    assert reloaded(state, east, both).restarted == ()
    assert reloaded(state, both, settings).restarted == ("scheduler",)


def test_keys_that_wait_for_a_restart_are_named(state: StateFolder, settings: UpSettings) -> None:
    old = replace(settings, nodes={"h1": NodeSection()}, centres={"east": CentreSection()})
    new = replace(
        old,
        paths=replace(settings.paths, interval_ns=1_000_000, flows=()),
        placement=replace(settings.placement, stuck_s=7.0),
        collector=replace(settings.collector, metrics=None),
        nodes={"h1": NodeSection(report_s=7.0)},
        # A centre's agent applies this by itself.
        centres={"east": CentreSection(labels={"a": "b"})},
    )
    made = reloaded(state, old, new)
    assert (made.added, made.removed, made.fixed) == ((), (), ())
    assert made.waiting == {
        "collector": ("metrics",),
        "paths": ("interval",),
        "placement": ("stuck",),
        "node-h1": ("report",),
    }
    assert "paths: `millrace restart paths` required for: interval" in made.lines()
    assert reloaded(state, new, new).lines() == ["settings reloaded"]


def test_restarted_daemon_no_longer_waits(state: StateFolder, settings: UpSettings) -> None:
    old = make_plan(settings, state)
    new = make_plan(replace(settings, paths=replace(settings.paths, interval_ns=1_000_000)), state)
    assert set(changes(new, new, started(old)).waiting) == {"paths"}
    assert not changes(new, new, started(new)).waiting


def test_keys_of_the_supervisor_stay_as_they_were(state: StateFolder, settings: UpSettings) -> None:
    new = replace(
        settings,
        topology="abilene",
        restart=RestartSettings(stop_s=7.0),
        fabric=replace(settings.fabric, seed=9),
        collector=replace(settings.collector, udp_port=40_000),
        paths=replace(settings.paths, address="unix:elsewhere.sock", interval_ns=1_000_000),
    )
    made = reloaded(state, settings, new)
    assert made.fixed == ("topology", "fabric.seed", "collector.udp_port", "paths.address", "restart.stop")
    assert made.plan.topology.name.startswith("leaf-spine")
    # The rest is applied.
    assert made.plan.settings == replace(settings, paths=replace(settings.paths, interval_ns=1_000_000))
    assert made.waiting == {"paths": ("interval",)}
    line = (
        "restart of `millrace up` required for: topology, fabric.seed, collector.udp_port, paths.address, restart.stop"
    )
    assert line in made.lines()


def test_node_of_another_topology_is_refused(state: StateFolder, settings: UpSettings) -> None:
    with pytest.raises(MillraceError, match=r"nodes\.h-atla: topology leaf-spine\S* has no such host"):
        reloaded(state, settings, replace(settings, topology="abilene", nodes={"h-atla": NodeSection()}))
