"""Settings of a centre's agent."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import LabelName, LabelValue, Name, Names
from controller.apiserver.resources.hardware import DeviceNumber
from dataplane.cgroups import parse_cpus
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

PositiveS = Annotated[float, Meta(gt=0, le=1e6)]
Positive = Annotated[int, Meta(ge=1, le=1 << 53)]
WarmModule = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$(?!\n)", max_length=100)]
Uid = Annotated[int, Meta(ge=1000, le=(1 << 32) - 3)]
UidCount = Annotated[int, Meta(ge=1, le=1 << 20)]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00]+$", max_length=4096)]
CpuList = Annotated[str, Meta(pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$(?!\n)", max_length=1024)]
"""CPUs as Linux writes them: 0-3,8."""


class UnitSettings(Strict, frozen=True):
    """A type of units: what each of them has."""

    name: Name
    """By which tasks and results name it."""
    count: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """How many there are to be; null: as many as there is room for, after the types before this one."""
    cores: Annotated[int, Meta(ge=1, le=4096)] = 1
    """Whole cores of each unit, which no other unit has."""
    core_numbers: Annotated[tuple[CpuList, ...], Meta(max_length=4096)] = ()
    """The cores by number, a list for each unit, such as ["0-4", "5-9"]; then `count` and `cores` follow from it."""
    cpu_milli: Positive | None = None
    """CPU time of each unit in thousandths of a core, where that is less than its cores."""
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    """Memory of each unit; 0: none is set apart, and no limit holds."""
    devices: Annotated[int, Meta(ge=0, le=256)] = 0
    """Devices of each unit, which no other unit has."""
    device_kind: DeviceKind = DeviceKind.GPU
    """Which kind of devices."""
    device_numbers: Annotated[tuple[tuple[DeviceNumber, ...], ...], Meta(max_length=4096)] = ()
    """The devices by number, a list for each unit, as `millrace devices list` counts them."""

    def __post_init__(self) -> None:
        if self.core_numbers and self.device_numbers and len(self.core_numbers) != len(self.device_numbers):
            cores, devices = len(self.core_numbers), len(self.device_numbers)
            raise ValueError(f"core_numbers and device_numbers are of {cores} and of {devices} units")
        if any(not parse_cpus(text) for text in self.core_numbers):
            raise ValueError("core_numbers: a list of cores is empty")

    @property
    def wanted(self) -> int | None:
        """How many units are wanted; None: as many as there is room for."""
        if self.core_numbers or self.device_numbers:
            return len(self.core_numbers or self.device_numbers)
        return self.count


class ControlGroups(StrEnum):
    """Whether jobs are limited by control groups."""

    AUTO = "auto"
    """Where this user may make them; else by affinity and rlimits alone, which is said."""
    ALWAYS = "always"
    """Without them the agent does not start."""
    NEVER = "never"
    """By affinity and rlimits alone."""


class LocalSettings(Strict, frozen=True):
    """Jobs as processes of this machine."""

    cores: CpuList | None = None
    """The cores that this centre has of the machine; null: all that this process may use."""
    cpu_milli: Positive | None = None
    """CPU time of all jobs together in thousandths of a core; null: no limit but their cores."""
    memory_bytes: Positive | None = None
    """Memory of all jobs together; null: the machine's."""
    processes: Annotated[int, Meta(ge=1, le=1 << 22)] = 4096
    """Processes and threads that a job may have at once, where it has a control group or a user of its own."""
    network_namespace: str | None = None
    """What jobs run in: a path, a name of `ip netns`, or FABRIC:HOST of a fabric in the kernel; null: the agent's."""
    user: str | None = None
    """The user that all jobs run as, which takes root; null: of root's agent each job has a number of its own."""
    uids: tuple[Uid, UidCount] | None = None
    """The first and the count of the numbers (user and group) that jobs have where the agent is root, one each; null:
    4096 from 1,900,000,000, or 512 from 60,600 where the machine has no more than 65,536."""
    unsafe_same_user: bool = False
    """Jobs run as the agent's own user and see all that it sees, its tokens too; who submits one is this user then."""
    hidden: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """Files and folders that jobs do not see, beside /run, the agent's home, its state folder and token files."""
    shown: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """What jobs see nevertheless, read-only: programs in the agent's home, for instance."""
    writable: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """Folders beside their own into which jobs may write as far as their user may; all else is read-only."""
    scratch_bytes: Annotated[int, Meta(ge=1 << 16, le=1 << 53)] = 1 << 30
    """The most that a job's own /tmp, /var/tmp and /dev/shm hold, each; they are memory, and count as the job's."""
    control_groups: ControlGroups = ControlGroups.AUTO
    """Whether jobs are limited by control groups."""
    look_s: PositiveS = 5.0
    """Time between two looks at what the machine has."""
    warm: Annotated[tuple[WarmModule, ...], Meta(max_length=16)] = ()
    """Modules that are slow to import, such as torch: a process that has them forks the runners of probes, as the
    agent's user, which takes `unsafe_same_user`."""

    def __post_init__(self) -> None:
        if self.unsafe_same_user and (self.user is not None or self.uids is not None):
            raise ValueError("unsafe_same_user: jobs run as the agent's user, not as `user` or with `uids`")
        if self.user is not None and self.uids is not None:
            raise ValueError("user: all jobs run as it, none with a number of `uids`")
        if self.warm and not self.unsafe_same_user:
            raise ValueError("warm: needs unsafe_same_user, as the warm process runs probes as the agent's user")


class OnStop(StrEnum):
    """What becomes of jobs when the agent is told to stop."""

    KEEP = "keep"
    """They run on: an agent that is started again adopts them."""
    STOP = "stop"
    """They are ended, and their tasks given back to be dispatched elsewhere."""


class TrialSettings(Strict, frozen=True):
    """How it is found out which probe kernels run on each unit type."""

    kernels: Annotated[tuple[Name, ...], Meta(max_length=4096)] | None = None
    """Those that are tried; null: all of the library."""
    limit_s: PositiveS = 120.0
    """For all kernels together on one unit; those that are not done then are not supported."""
    kernel_s: PositiveS = 30.0
    """For one kernel."""


class MetricsSettings(Strict, frozen=True):
    """Where Prometheus finds the agent's metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9469


class CentreSettings(Strict, frozen=True):
    """What `millrace centre serve` is given."""

    centre: Name
    """The centre's name."""
    state: str
    """A folder of its own: jobs, what they leave, what was reported."""
    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    """The file of the centre's token (mode 600); null: the one that MILLRACE_TOKEN_FILE names."""
    topology: str | None = None
    """A topology file or a bundled one's name, against which `hosts` are checked."""
    hosts: Names = ()
    """Which hosts of the topology this centre is: without one the network's state does not apply to it."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Of the Centre resource, where this agent makes it."""
    units: Annotated[tuple[UnitSettings, ...], Meta(max_length=256)] = (UnitSettings(name="core"),)
    """How what there is is divided; the first types have the first choice."""
    local: LocalSettings = LocalSettings()
    """Where jobs are processes of this machine."""
    trial: TrialSettings = TrialSettings()
    """Which probe kernels run here."""
    metrics: MetricsSettings | None = None
    """Where Prometheus finds metrics; null: nowhere."""
    report_s: PositiveS | None = None
    """Time between two reports; null: a quarter of the lease."""
    look_s: PositiveS = 2.0
    """Time between two looks at all jobs; ends of jobs are told at once where the engine says so."""
    most_waiting: Annotated[int, Meta(ge=0, le=100_000)] = 64
    """So many tasks wait here for units; more are given back."""
    wait_s: PositiveS = 300.0
    """A task that has waited for units for so long is given back."""
    limit_s: PositiveS = 86_400.0
    """The longest that a task may run that says no limit of its own."""
    probe_limit_s: PositiveS = 300.0
    """The longest that a probe may run."""
    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """How long a job has, once asked to end, before it is killed."""
    output_limit_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    """Of a job's output, and of its errors, so much is kept: the beginning and the end."""
    jobs_folder: str | None = None
    """Where jobs have their folders, for Slurm and Ray on a file system that the nodes share; null: in the state
    folder, which no other user can enter."""
    on_stop: OnStop = OnStop.KEEP
    """What becomes of jobs when this agent is told to stop."""
    python: str | None = None
    """The interpreter where jobs run, with Millrace in it for probes; null: this agent's own, and its Millrace."""
    secrets: str | None = None
    """The folder of secrets, PROJECT/NAME in it (modes 700 and 600); null: no task gets any."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """What jobs find in their environment beside what their tasks say; nothing of the agent's own is in there."""

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.units]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ValueError(f"units: {twice} is there twice")
        if not self.units:
            raise ValueError("units: at least one type is needed")
