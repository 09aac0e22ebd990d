"""The state folder and its one settings file, and what is derived from it."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from collectors.events.standard import STANDARD_RULES
from collectors.process import CollectorProcessSettings
from controller.apiserver.settings import ApiSettings
from controller.apps.up.command import UpOptions, run, status
from controller.apps.up.errors import UpError
from controller.apps.up.places import default_state
from controller.apps.up.plan import UpPlan, make_plan, settings_file, write_generated
from controller.apps.up.settings import BalanceSection, CentreSection, DriveSection, NodeSection, UpSettings
from controller.apps.up.state import StateFolder, default_run, free_port
from controller.balance.levers.settings import LeverSettings, PoolLever
from controller.balance.rules import PlatformRule
from controller.balance.running.settings import BusSettings, InterfaceBus, LoadSettings, RunSettings
from controller.balance.settings import BalanceSettings, MovingSettings
from controller.network.daemon_settings import DaemonSettings
from controller.network.paths.settings import PathServerSettings
from controller.scheduling.settings import SchedulerSettings
from controller.scheduling.tasks.settings import TaskSettings
from controller.workloads.centres.settings import CentreSettings, LocalSettings, MetricsSettings
from controller.workloads.nodes.settings import NodeSettings
from controller.workloads.placement.settings import PlacementSettings
from dataplane.config import Strict, load, loads
from dataplane.errors import ConfigError, MillraceError
from dataplane.fabric.live.settings import FabricSettings, Time
from dataplane.rpc.access import Role
from dataplane.topology.demands import load_demands
from dataplane.topology.file import load_topology


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateFolder]:
    # pytest's own folder may be too long for sockets in it.
    with tempfile.TemporaryDirectory(prefix="up") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        folder = StateFolder(tmp_path / "state")
        folder.prepare()
        yield folder


def settings_of(state: StateFolder, topology: str = "abilene") -> UpSettings:
    state.write_settings(topology, Time.VIRTUAL)
    return load(state.settings, UpSettings)


def settings_by_name(plan: UpPlan) -> dict[str, Strict]:
    return {daemon.name: daemon.settings for daemon in plan.daemons}


def test_first_settings_are_private_and_readable(state: StateFolder) -> None:
    settings = settings_of(state)
    assert stat.S_IMODE(state.settings.stat().st_mode) == 0o600
    assert (settings.topology, settings.time) == ("abilene", Time.VIRTUAL)
    assert settings.collector.address == f"unix:{default_run(state.path)}/collector.sock"


def test_state_folder_is_private(tmp_path: Path) -> None:
    for path in (tmp_path / "fresh", tmp_path / "used"):
        path.mkdir()
        if path.name == "used":
            (path / "millrace.yaml").touch()
            (path / "history").mkdir()
        path.chmod(0o755)
        StateFolder(path).prepare()
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.mkdir()
    (path / "letter").touch()
    path.chmod(0o755)
    with pytest.raises(UpError, match=r"home: other users can enter it, and it holds letter, .*: chmod 700 it"):
        StateFolder(path).prepare()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    assert [entry.name for entry in path.iterdir()] == ["letter"]


@pytest.mark.root
def test_a_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.mkdir()
    os.chown(path, 12345, 12345)
    with pytest.raises(UpError, match=r"state folder .*: belongs to user 12345: use another with --state"):
        StateFolder(path).prepare()


def test_a_port_that_is_taken_is_not_written_down(state: StateFolder) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        other = free_port(port)
        assert other not in (None, port)
    assert free_port(port) is None
    state.write_settings("abilene", Time.VIRTUAL, udp_port=other)
    assert load(state.settings, UpSettings).collector.udp_port == other


def test_daemons_settings_are_derived_and_agree(state: StateFolder) -> None:
    plan = make_plan(settings_of(state), state)
    write_generated(plan)
    kinds: dict[str, type[Strict]] = {
        "fabric": FabricSettings,
        "collector": CollectorProcessSettings,
        "paths": PathServerSettings,
        "controller": DaemonSettings,
        "api": ApiSettings,
        "scheduler": SchedulerSettings,
        "placement": PlacementSettings,
    }
    by_name: dict[str, Strict] = {name: load(settings_file(state, name), kind) for name, kind in kinds.items()}
    assert by_name == settings_by_name(plan)
    fabric, collector = by_name["fabric"], by_name["collector"]
    paths, controller = by_name["paths"], by_name["controller"]
    assert isinstance(fabric, FabricSettings)
    assert isinstance(collector, CollectorProcessSettings)
    assert isinstance(paths, PathServerSettings)
    assert isinstance(controller, DaemonSettings)
    assert isinstance(controller.switches, dict)
    assert controller.switches["atla"] == f"unix:{fabric.switches}/atla.sock"
    assert fabric.reports == f"127.0.0.1:{collector.receiver.udp_port}"
    assert paths.feed == collector.feed.address == controller.collector
    assert [rule.name for rule in collector.events.rules] == [*(rule.name for rule in STANDARD_RULES), "switch silent"]
    assert collector.events.database == str(state.path / "events.sqlite")
    assert controller.watches[0].sample_every == collector.collector.state.sample_every > 1
    assert fabric.demands is not None
    matrix = load_demands(Path(fabric.demands), load_topology(fabric.topology).host)
    assert plan.load is not None
    assert matrix.total_bps == pytest.approx(sum(plan.load.demands.values()), rel=0.01)


def test_switches_that_run_already_are_joined(state: StateFolder) -> None:
    topology = load_topology("leaf-spine")
    addresses = {node.name: f"127.0.0.1:{9000 + node.node_id}" for node in topology.switches}
    plan = make_plan(replace(settings_of(state, "leaf-spine"), switches=addresses), state)
    assert [daemon.name for daemon in plan.daemons] == [
        "collector",
        "paths",
        "controller",
        "api",
        "scheduler",
        "placement",
    ]
    assert (plan.topology, plan.load, plan.stats_file) == (topology, None, None)
    controller = settings_by_name(plan)["controller"]
    assert isinstance(controller, DaemonSettings)
    assert controller.switches == addresses


def test_local_hosts_have_managers_with_own_tokens(state: StateFolder) -> None:
    settings = replace(settings_of(state, "leaf-spine"), nodes={"h1": NodeSection(labels={"disk": "fast"})})
    plan = make_plan(settings, state)
    names = [daemon.name for daemon in plan.daemons]
    assert all(set(daemon.asks) <= set(names[: names.index(daemon.name)]) for daemon in plan.daemons)
    agent = plan.daemons[-1]
    assert (agent.name, agent.words, agent.role, agent.subject) == ("node-h1", ("node", "serve"), Role.NODE, "h1")
    assert isinstance(agent.settings, NodeSettings)
    assert (agent.settings.network_namespace, agent.settings.labels) == (None, {"disk": "fast"})
    kernel = make_plan(replace(settings, time=Time.KERNEL), state)
    by_name = settings_by_name(kernel)
    fabric, node = by_name["fabric"], by_name["node-h1"]
    assert isinstance(fabric, FabricSettings)
    assert isinstance(node, NodeSettings)
    assert node.network_namespace == f"{fabric.namespaces}/h1"
    state.prepare()
    write_generated(kernel)
    with pytest.raises(UpError, match=r"nodes\.h77: topology leaf-spine-\S+ has no such host"):
        make_plan(replace(settings, nodes={"h77": NodeSection()}), state)


def test_compute_centres_have_agents_with_tokens_of_their_own(state: StateFolder) -> None:
    section = CentreSection(hosts=("h2",), local=LocalSettings(cores="0"))
    settings = replace(settings_of(state, "leaf-spine"), centres={"east": section})
    agent = make_plan(settings, state).daemons[-1]
    assert (agent.name, agent.words, agent.role, agent.subject) == (
        "centre-east", ("centre", "serve"), Role.CENTRE, "east",
    )  # fmt: skip
    assert isinstance(agent.settings, CentreSettings)
    assert (agent.settings.hosts, agent.settings.local.network_namespace) == (("h2",), None)
    kernel = make_plan(replace(settings, time=Time.KERNEL), state)
    by_name = settings_by_name(kernel)
    fabric, centre = by_name["fabric"], by_name["centre-east"]
    assert isinstance(fabric, FabricSettings)
    assert isinstance(centre, CentreSettings)
    assert centre.local.network_namespace == f"{fabric.namespaces}/h2"
    with pytest.raises(UpError, match=r"centres\.east\.hosts: topology leaf-spine-\S+ has no host h77"):
        make_plan(replace(settings, centres={"east": CentreSection(hosts=("h77",))}), state)


@pytest.mark.parametrize(
    ("section", "metrics"),
    [
        (CentreSection(), MetricsSettings(port=9469)),
        (CentreSection(metrics=MetricsSettings(port=9999)), MetricsSettings(port=9999)),
        (CentreSection(metrics=None), None),
    ],
)
def test_agents_of_centres_serve_metrics_as_configured(
    state: StateFolder, section: CentreSection, metrics: MetricsSettings | None
) -> None:
    agent = make_plan(replace(settings_of(state, "leaf-spine"), centres={"east": section}), state).daemons[-1]
    assert isinstance(agent.settings, CentreSettings)
    assert agent.settings.metrics == metrics


def test_units_of_pools_are_balanced_as_configured(state: StateFolder) -> None:
    plain = settings_of(state, "leaf-spine")
    assert "balance" not in {daemon.name for daemon in make_plan(plain, state).daemons}
    section = BalanceSection(interval_s=0.5, moving=MovingSettings(margin=0.2))
    (balance,) = [
        daemon for daemon in make_plan(replace(plain, balance=section), state).daemons if daemon.name == "balance"
    ]
    assert (balance.words, balance.role, balance.asks) == (("balance", "serve"), Role.BALANCE, ("api",))
    settings = balance.settings
    assert isinstance(settings, BalanceSettings)
    assert (settings.interval_s, settings.moving.margin, settings.api) == (0.5, 0.2, plain.address("api"))
    assert settings.history is not None
    assert settings.history.file == str(state.path / "balance.sqlite")


def test_drives_measure_their_hosts_link_and_hold_units(state: StateFolder) -> None:
    plain = settings_of(state, "leaf-spine")
    pool = PoolLever(pool="gpus", holder="h1-gpus", set=True)
    alone = DriveSection(load=LoadSettings(group="/u0"))
    sections = {"u0": alone, "u1": replace(alone, levers=LeverSettings(pool=pool), platform=PlatformRule())}
    plan = make_plan(replace(plain, nodes={"h1": NodeSection(drives=sections)}), state)
    write_generated(plan)
    daemons = {daemon.name: daemon for daemon in plan.daemons}
    first, second = daemons["drive-u0"], daemons["drive-u1"]
    assert (first.words, first.token) == (("balance", "drive", "--quiet"), None)
    assert (second.role, second.subject) == (Role.HOLDER, "h1-gpus")
    assert second.token == state.path / "tokens" / "drive-u1"
    assert set(second.asks) >= {"api", "node-h1", "collector"}
    settings = load(settings_file(state, "drive-u1"), RunSettings)
    assert settings == second.settings
    assert settings.bus.telemetry is not None
    assert (settings.unit, settings.bus.telemetry.host) == ("u1", "h1")
    assert settings.bus.telemetry.network_state.feed == plain.address("collector")
    assert settings.levers.pool == replace(pool, api=plain.address("api"))
    late = replace(alone, interval_s=3600.0)
    with pytest.raises(UpError, match=r"^nodes\.h1\.drives\.u0: silence\.stale must be at least two intervals"):
        make_plan(replace(plain, nodes={"h1": NodeSection(drives={"u0": late})}), state)


def test_a_drives_device_is_looked_up_in_its_host(state: StateFolder) -> None:
    """In a kernel fabric a host has a network namespace of its own."""
    bus = BusSettings(interface=InterfaceBus(interface="eth0"))
    drive = DriveSection(load=LoadSettings(group="/u0"), bus=bus)
    plain = replace(settings_of(state, "leaf-spine"), nodes={"h1": NodeSection(drives={"u0": drive})})
    kernel = replace(plain, time=Time.KERNEL)
    for settings, namespace in ((plain, None), (kernel, str(Path(plain.run) / "namespaces" / "h1"))):
        run = settings_by_name(make_plan(settings, state))["drive-u0"]
        assert isinstance(run, RunSettings)
        assert run.bus.interface is not None
        assert run.bus.interface.namespace == namespace


def test_scheduler_dispatches_tasks_to_named_centres(state: StateFolder) -> None:
    plain = settings_of(state, "leaf-spine")
    with_centres = replace(plain, centres={"east": CentreSection()})
    mine = TaskSettings(retries=9)
    stated = replace(with_centres, scheduler=replace(plain.scheduler, tasks=mine))

    def tasks_of(settings: UpSettings) -> TaskSettings | None:
        scheduler = settings_by_name(make_plan(settings, state))["scheduler"]
        assert isinstance(scheduler, SchedulerSettings)
        return scheduler.tasks

    history = str(state.path / "history")
    derived = TaskSettings(history=history)
    assert [tasks_of(each) for each in (plain, with_centres, stated)] == [None, derived, replace(mine, history=history)]
    # A daemon reads its settings from a file.
    plan = make_plan(with_centres, state)
    write_generated(plan)
    assert load(settings_file(state, "scheduler"), SchedulerSettings) == settings_by_name(plan)["scheduler"]


def test_an_idle_fabric_and_one_switch_send_nothing(state: StateFolder, tmp_path: Path) -> None:
    settings = settings_of(state)
    assert make_plan(replace(settings, fabric=replace(settings.fabric, peak_utilisation=0.0)), state).load is None
    file = tmp_path / "one.yaml"
    file.write_text(
        "millrace: 1\nname: one\ncollector: {host: c1}\nswitches: [{name: s1}]\n"
        "hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: c1, switch: s1}]\n",
        encoding="utf-8",
    )
    assert make_plan(replace(settings, topology=str(file)), state).load is None


def test_a_second_one_is_refused_while_the_first_lives(state: StateFolder) -> None:
    with (
        state.locked(),
        pytest.raises(UpError, match=rf"is already running for .* \(process {os.getpid()}\)"),
        state.locked(),
    ):
        pytest.fail("two processes hold one folder")
    with state.locked():
        pass


def test_an_edited_file_is_taken_as_it_is_and_a_wrong_key_named(state: StateFolder) -> None:
    settings_of(state)
    edited = state.settings.read_text(encoding="utf-8") + "paths_interval: 3\n"
    state.settings.write_text(edited, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"millrace.yaml:\d+: paths_interval: unknown key"):
        run(UpOptions("abilene", None, state.path, None), print)
    assert state.settings.read_text(encoding="utf-8") == edited


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("geant", None), "has topology abilene, not geant: edit it, or use another folder with --state"),
        (("abilene", Time.KERNEL), "has time: virtual, not kernel"),
    ],
)
def test_a_command_that_contradicts_the_file_is_refused(
    state: StateFolder, options: tuple[str, Time | None], message: str
) -> None:
    settings_of(state)
    with pytest.raises(UpError, match=message):
        run(UpOptions(*options, state.path, None), print)


def test_settings_of_ones_own_need_no_folder_of_sockets(state: StateFolder, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("topology: leaf-spine\nnodes: {h1: {runtime: {kind: podman}}}\n", encoding="utf-8")
    settings = load(file, UpSettings).in_folder(state)
    assert settings.run == str(default_run(state.path))
    assert settings.address("api") == f"unix:{default_run(state.path)}/api.sock"
    assert loads("topology: leaf-spine\nrun: /elsewhere\n", UpSettings).in_folder(state).run == "/elsewhere"


def test_socket_folder_is_known_without_settings(state: StateFolder) -> None:
    assert state.noted_run() is None
    with pytest.raises(UpError, match="no `millrace up` has run"):
        status(state.path)
    state.note_run(Path("/run/user/1/millrace"))
    assert state.noted_run() == Path("/run/user/1/millrace")


def test_a_slip_of_the_pen_is_not_written_down(state: StateFolder, tmp_path: Path) -> None:
    with pytest.raises(MillraceError, match="abilnee"):
        run(UpOptions("abilnee", None, state.path, None), print)
    assert not state.settings.exists()
    with pytest.raises(UpError, match="no topology given"):
        run(UpOptions(None, None, state.path, None), print)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UpError, match="state folder"):
        run(UpOptions("abilene", None, tmp_path / "file", None), print)


def test_the_default_folders_are_the_users() -> None:
    assert default_state({"HOME": "/home/x"}) == Path("/home/x/.local/state/millrace/up")
    assert default_state({"HOME": "/home/x", "XDG_STATE_HOME": "/s"}) == Path("/s/millrace/up")
    with pytest.raises(UpError, match="--state FOLDER"):
        default_state({})
    assert default_run(Path("/a")) != default_run(Path("/b"))
