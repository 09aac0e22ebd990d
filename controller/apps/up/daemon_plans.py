"""Plans of single daemons, derived from the common settings: their commands, settings and addresses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from collectors.events.rules import RuleSettings
from collectors.events.standard import SILENT_SWITCH, STANDARD_RULES
from collectors.feed.server import FeedSettings
from collectors.history.settings import HistorySettings
from collectors.ingest.receiver import ReceiverSettings
from collectors.process import RELOADED as COLLECTOR_RELOADED
from collectors.process import CollectorProcessSettings
from controller.apiserver.settings import ApiSettings, StoragePlace, ViewSettings
from controller.apps.demo.prepare import ScaledLoad
from controller.apps.up.errors import UpError
from controller.apps.up.remains import NAMESPACES, STATS, SWITCHES
from controller.apps.up.settings import BalanceSection, UpSettings
from controller.apps.up.state import StateFolder
from controller.balance.running.settings import BusSettings, RunSettings, TelemetryBus
from controller.balance.settings import BalanceSettings
from controller.balance.settings import HistorySettings as BalanceHistory
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.network.aggregation.service.settings import JobSettings
from controller.network.daemon_settings import RELOADED as CONTROLLER_RELOADED
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION, fabric_program
from controller.network.paths.settings import PathServerSettings, RecordSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.tables.sources import check_networks
from controller.network.tables.telemetry.int_watch import Watch
from controller.scheduling.settings import RELOADED as SCHEDULER_RELOADED
from controller.scheduling.settings import SchedulerSettings
from controller.scheduling.tasks.settings import TaskSettings
from controller.workloads.centres.settings import FIXED as CENTRE_FIXED
from controller.workloads.centres.settings import CentreSettings
from controller.workloads.centres.settings import OnStop as OnStopOfCentre
from controller.workloads.nodes.settings import NodeSettings, OnStop
from controller.workloads.placement.settings import PlacementSettings
from dataplane.config import Strict
from dataplane.fabric.live.settings import FabricSettings, Time
from dataplane.rpc.access import Role
from dataplane.rpc.access.settings import TOKEN_FILE
from dataplane.rpc.addresses import target_of
from dataplane.topology.values import Topology

if TYPE_CHECKING:
    from dataplane.metrics_server import MetricsPlace

_LOOPBACK: Final = "127.0.0.1"
_RETRY: Final = RetrySettings(longest_wait_ns=500_000_000)
"""On one machine a missing switch returns within seconds, and polling is cheap."""


@dataclass(frozen=True, slots=True)
class DaemonPlan:
    """A daemon: `millrace WORDS --settings FILE`, with its addresses and dependencies."""

    name: str
    words: tuple[str, ...]
    settings: Strict
    addresses: Mapping[str, str]
    """Addresses by service."""
    reloads: tuple[str, ...] | None = None
    """Keys of its settings that SIGHUP applies; None: it takes no SIGHUP."""
    token: Path | None = None
    """File of its token for the API server, if any."""
    role: Role = Role.SERVICE
    """Permissions of that token."""
    subject: str | None = None
    """Its node or centre, if any."""
    asks: tuple[str, ...] = ()
    """Daemons that start before it and stop after it."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment variables added to the supervisor's own."""
        return {} if self.token is None else {TOKEN_FILE: str(self.token)}


@dataclass(frozen=True, slots=True)
class DaemonPlanner:
    """Derives each daemon's plan from the common settings, for the topology as it runs."""

    settings: UpSettings
    state: StateFolder
    topology: Topology
    watches: tuple[Watch, ...]
    sends: bool
    """True if hosts of the fabric send all the time."""

    @property
    def topology_file(self) -> str:
        """Path of the topology as it runs, which all daemons read."""
        return str(self.state.generated / "topology.yaml")

    def fabric(self, load: ScaledLoad | None) -> DaemonPlan:
        """Return the fabric: switches and hosts, and the load that the hosts send, if any."""
        section, run = self.settings.fabric, Path(self.settings.run)
        p4info, program = fabric_program(self._program)
        settings = FabricSettings(
            topology=self.topology_file,
            switches=str(run / SWITCHES),
            time=self.settings.time,
            reports=f"127.0.0.1:{self._report_port()}",
            demands=None if load is None else str(self.state.generated / "demands.csv"),
            seed=section.seed,
            p4info=str(p4info),
            program=str(program),
            stats_file=str(run / STATS),
            namespaces=str(self._namespaces) if self.settings.time is Time.KERNEL else None,
            metrics=section.metrics,
        )
        addresses = {"P4Runtime, gNMI": f"unix:{settings.switches}/"} | _of_metrics(section.metrics)
        return DaemonPlan("fabric", ("fabric", "serve"), settings, addresses)

    def collector(self) -> DaemonPlan:
        """Return the collector; its history and events are in the state folder."""
        section = self.settings.collector
        state = replace(section.state.state, sample_every=self._sample_every())
        settings = CollectorProcessSettings(
            topology=self.topology_file,
            receiver=ReceiverSettings(address=section.listen, udp_port=self._report_port()),
            feed=FeedSettings(address=self.settings.address("collector"), tls=self.settings.tls),
            collector=replace(section.state, state=state, relays=self._relays()),
            events=self._events(),
            history=self._history(),
            metrics=section.metrics,
        )
        addresses = {"reports": f"{section.listen}:{self._report_port()}/udp", "feed": settings.feed.address}
        addresses |= _of_metrics(section.metrics)
        words, reloads = ("collector", "serve"), COLLECTOR_RELOADED
        return DaemonPlan("collector", words, settings, addresses, reloads=reloads, asks=("fabric",))

    def _events(self) -> RuleSettings:
        """Return the rules of events; what users change of them is in the state folder."""
        silent = (SILENT_SWITCH,) if self.sends else ()
        events = self.settings.collector.events or RuleSettings(rules=(*STANDARD_RULES, *silent))
        return replace(events, database=events.database or str(self.state.path / "events.sqlite"))

    def _history(self) -> HistorySettings:
        return self.settings.collector.history or HistorySettings(folder=str(self.state.path / "history"))

    def _relays(self) -> tuple[str, ...] | None:
        """Return the trusted relays of any switch's reports: for a collector on loopback, the fabric."""
        section = self.settings.collector
        stated = section.state.relays
        return stated if stated is None or section.listen != _LOOPBACK else (*stated, _LOOPBACK)

    def paths(self) -> DaemonPlan:
        """Return the path server; it counts the load of telemetry if one watch causes it."""
        section = self.settings.paths
        watch = self.watches[0] if len(self.watches) == 1 else None
        load = None if watch is None else TelemetryLoad(watch.sample_every, watch.instructions, watch.mode)
        decide = section.decide if section.decide.watch is not None else replace(section.decide, watch=load)
        settings = PathServerSettings(
            topology=self.topology_file,
            feed=self.settings.address("collector"),
            listen=self.settings.address("paths"),
            tls=self.settings.tls,
            interval_ns=section.interval_ns,
            flows=section.flows,
            decide=decide,
            engineering=section.engineering,
            records=RecordSettings(database=str(self.state.path / "paths.sqlite")),
            metrics=section.metrics,
            traces=section.traces,
        )
        return DaemonPlan("paths", ("paths", "serve"), settings, {"routes": settings.listen}, asks=("collector",))

    def controller(self, switches: Mapping[str, str]) -> DaemonPlan:
        """Return the controller of these switches; raise an error that names the key of an invalid setting."""
        section = self.settings.controller
        settings = DaemonSettings(
            topology=self.topology_file,
            switches=dict(switches),
            path_server=self.settings.address("paths"),
            collector=self.settings.address("collector"),
            hellos=section.hellos,
            watches=self.watches,
            reporting=section.reporting,
            aggregation=section.aggregation,
            jobs=None if section.jobs is None else self._jobs(section.jobs),
            store=section.store,
            routed_networks=section.routed_networks,
            retry=_RETRY,
            listen=self.settings.address("controller"),
            tls=self.settings.tls,
            metrics=section.metrics,
            traces=section.traces,
        )
        settings.targets(self.topology)  # refuse invalid settings before anything starts
        check_networks(self.topology, settings.routed_networks)
        addresses = {"status": self.settings.address("controller")}
        if section.jobs is not None:
            addresses["jobs"] = section.jobs.listen
        asks = ("fabric", "collector", "paths")
        words, reloads = ("controller", "serve"), CONTROLLER_RELOADED
        return DaemonPlan("controller", words, settings, addresses, reloads=reloads, asks=asks)

    def _jobs(self, jobs: JobSettings) -> JobSettings:
        """Return the job service's settings, with its database in the state folder unless they name one."""
        database = str(self.state.path / "jobs.sqlite") if jobs.database is None else jobs.database
        return replace(jobs, database=database)

    def api(self, switches: Mapping[str, str]) -> DaemonPlan:
        """Return the API server and its page."""
        section, page, jobs = self.settings.api, self.settings.api.page, self.settings.controller.jobs
        own = () if page is None else (f"{page.address}:{page.port}",)
        view = None
        if page is not None:
            view = ViewSettings(
                topology=self.topology_file,
                network_state=self._network_state(),
                job_service=None if jobs is None else jobs.listen,
                controller=self.settings.address("controller"),
                switches=dict(switches),
                history=self._history().folder,
                hosts=page.hosts,
            )
        settings = ApiSettings(
            storage=section.storage or StoragePlace(sqlite=str(self.state.path / "api.sqlite")),
            listen=(self.settings.address("api"), *own, *section.listen),
            view=view,
            tls=section.tls,
            audit=section.audit,
            limits=section.limits,
            retention=section.retention,
            metrics=section.metrics,
        )
        # On SIGHUP it reopens files, and applies no key.
        return DaemonPlan("api", ("api", "serve"), settings, {"HTTP": ", ".join(settings.addresses)}, reloads=())

    def scheduler(self) -> DaemonPlan:
        """Return the scheduler of pods and, with centres, of tasks."""
        section, defaults = self.settings.scheduler, SchedulerSettings()
        settings = SchedulerSettings(
            api=self.settings.address("api"),
            profiles=section.profiles or defaults.profiles,
            topology=self.topology_file,
            network=self._network_state(),
            queue=section.queue,
            metrics=section.metrics,
            explained_nodes=section.explained_nodes,
            tasks=self._tasks(),
        )
        # Its own token gives it only a scheduler's rights, and puts its name on its actions.
        token = self.state.path / "tokens" / "scheduler"
        words, asks, reloads = ("scheduler", "serve"), ("collector", "paths", "api"), SCHEDULER_RELOADED
        return DaemonPlan("scheduler", words, settings, {}, reloads=reloads, token=token, asks=asks)

    def _tasks(self) -> TaskSettings | None:
        """Return the settings of the task scheduler; it forecasts the network by this collector's history."""
        tasks = self.settings.scheduler.tasks or (TaskSettings() if self.settings.centres else None)
        if tasks is None or tasks.history is not None:
            return tasks
        return replace(tasks, history=self._history().folder)

    def placement(self) -> DaemonPlan:
        """Return the workload controller."""
        section, jobs = self.settings.placement, self.settings.controller.jobs
        settings = PlacementSettings(
            api=self.settings.address("api"),
            silence=section.silence,
            flapping=section.flapping,
            retries=section.retries,
            stuck_s=section.stuck_s,
            job_service=None if jobs is None else jobs.listen,
            metrics=section.metrics,
        )
        token = self.state.path / "tokens" / "placement"
        words = ("placement", "serve")
        return DaemonPlan("placement", words, settings, {}, token=token, role=Role.PLACEMENT, asks=("api",))

    def balance(self, section: BalanceSection) -> DaemonPlan:
        """Return the management service of unit pools; its history is in the state folder."""
        settings = BalanceSettings(
            api=self.settings.address("api"),
            interval_s=section.interval_s,
            stale_s=section.stale_s,
            moving=section.moving,
            table=section.table,
            history=BalanceHistory(file=str(self.state.path / "balance.sqlite"), keep_s=section.keep_s),
            metrics=section.metrics,
        )
        token = self.state.path / "tokens" / "balance"
        words = ("balance", "serve")
        return DaemonPlan("balance", words, settings, {}, token=token, role=Role.BALANCE, asks=("api",))

    def node(self, name: str) -> DaemonPlan:
        """Return the container manager of a host; in the kernel its pods are in its host's network namespace."""
        if name not in {host.name for host in self.topology.hosts}:
            raise UpError(f"nodes.{name}: topology {self.topology.name} has no such host")
        section, is_ours = self.settings.nodes[name], not self.settings.switches
        in_kernel = is_ours and self.settings.time is Time.KERNEL
        token = self.state.path / "tokens" / f"node-{name}"
        settings = NodeSettings(
            node=name,
            state=str(self.state.path / "nodes" / name),
            api=self.settings.address("api"),
            runtime=section.runtime,
            topology=self.topology_file,
            labels=section.labels,
            devices=section.devices,
            mps=section.mps,
            nic=section.nic,
            network_namespace=str(self._namespaces / name) if in_kernel else None,
            report_s=section.report_s,
            restart=section.restart,
            limits=section.limits,
            images=section.images,
            idle=section.idle,
            on_stop=OnStop.STOP,
            # The manager must finish before the supervisor kills it.
            stop_s=0.8 * self.settings.restart.stop_s,
        )
        words, asks = ("node", "serve"), ("fabric", "controller", "api")  # pods are workers of the controller's jobs
        return DaemonPlan(f"node-{name}", words, settings, {}, token=token, role=Role.NODE, subject=name, asks=asks)

    def centre(self, name: str) -> DaemonPlan:
        """Return a centre's agent; its jobs survive if it is killed, and end if it is stopped."""
        section, hosts = self.settings.centres[name], {host.name for host in self.topology.hosts}
        stranger = next((host for host in section.hosts if host not in hosts), None)
        if stranger is not None:
            problem = f"topology {self.topology.name} has no host {stranger}"
            raise UpError(f"centres.{name}.hosts: {problem}")
        local, in_kernel = section.local, not self.settings.switches and self.settings.time is Time.KERNEL
        if in_kernel and section.hosts and local.network_namespace is None:
            local = replace(local, network_namespace=str(self._namespaces / section.hosts[0]))
        # The state folder also holds the data of all other daemons, including tokens.
        local = replace(local, hidden=(*local.hidden, str(self.state.path.absolute())))
        settings = CentreSettings(
            centre=name,
            state=str(self.state.path / "centres" / name),
            api=self.settings.address("api"),
            topology=self.topology_file,
            hosts=section.hosts,
            labels=section.labels,
            units=section.units,
            local=local,
            trial=section.trial,
            sql=section.sql,
            environment=section.environment,
            metrics=section.metrics,
            report_s=section.report_s,
            on_stop=OnStopOfCentre.STOP,
            # The agent must finish before the supervisor kills it.
            grace_s=0.4 * self.settings.restart.stop_s,
        )
        token = self.state.path / "tokens" / f"centre-{name}"
        words, asks = ("centre", "serve"), ("fabric", "api")
        reloads = tuple(key for key in CentreSettings.__struct_fields__ if key not in CENTRE_FIXED)
        plan = DaemonPlan(f"centre-{name}", words, settings, {}, reloads=reloads, token=token, asks=asks)
        return dataclasses.replace(plan, role=Role.CENTRE, subject=name)

    def drive(self, node: str, unit: str) -> DaemonPlan:
        """Return the control loop of a unit of a node; it reports to this API server as the holder of a pool."""
        section, key = self.settings.nodes[node].drives[unit], f"nodes.{node}.drives.{unit}"
        levers, pool, holder = section.levers, section.levers.pool, None
        if pool is not None and pool.api is None and pool.token_file is None:
            levers, holder = replace(levers, pool=replace(pool, api=self.settings.address("api"))), pool.holder
        try:
            settings = RunSettings(
                unit=unit,
                bus=self._bus(node, section.bus),
                load=section.load,
                levers=levers,
                control=section.control,
                table=section.table,
                platform=section.platform,
                interval_s=section.interval_s,
                silence=section.silence,
                rest_s=section.rest_s,
                record=section.record,
            )
        except ValueError as error:
            raise UpError(f"{key}: {error}") from None
        name, words = f"drive-{unit}", ("balance", "drive", "--quiet")
        # Released before the node's manager stops, and before the API that books a pool's units.
        asks = ("fabric", "collector", "paths", "api", f"node-{node}")
        plan = DaemonPlan(name, words, settings, {}, asks=asks)
        if holder is None:
            return plan
        token = self.state.path / "tokens" / name
        return dataclasses.replace(plan, token=token, role=Role.HOLDER, subject=holder)

    def _bus(self, node: str, bus: BusSettings | None) -> BusSettings:
        """Return the meter of a unit's bus: the link to its host, unless one is stated."""
        if bus is None:
            state = self._network_state()
            return BusSettings(telemetry=TelemetryBus(host=node, topology=self.topology_file, network_state=state))
        in_kernel = not self.settings.switches and self.settings.time is Time.KERNEL
        if bus.interface is not None and bus.interface.namespace is None and in_kernel:
            return replace(bus, interface=replace(bus.interface, namespace=str(self._namespaces / node)))
        return bus

    def _network_state(self) -> NetworkStateSettings:
        return NetworkStateSettings(
            feed=self.settings.address("collector"),
            path_server=self.settings.address("paths"),
            tls=self.settings.tls,
            stale_after_ns=self.settings.scheduler.stale_after_ns,
        )

    @property
    def _namespaces(self) -> Path:
        """Folder of links to hosts' namespaces, whatever the fabric's name."""
        return Path(self.settings.run) / NAMESPACES

    @property
    def _program(self) -> str:
        """The program that the controller is going to push."""
        section = self.settings.controller
        adds_up = section.aggregation is not None or section.jobs is not None
        return FABRIC_AGGREGATION if adds_up or section.store is not None else FABRIC

    def _report_port(self) -> int:
        assert self.topology.collector is not None
        return self.settings.collector.udp_port or self.topology.collector.udp_port

    def _sample_every(self) -> int:
        """Return the factor of flows' rates, which is exact if all flows are sampled alike."""
        return self.watches[0].sample_every if self.watches else 1


def _of_metrics(place: MetricsPlace | None) -> dict[str, str]:
    """Return the address of a daemon's metrics, as `millrace status` shows it; nothing where it serves none."""
    return {} if place is None else {"metrics": f"http://{target_of(place.address)}:{place.port}/metrics"}
