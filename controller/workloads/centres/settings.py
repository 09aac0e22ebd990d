"""Settings of a centre's agent."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import LabelName, LabelValue, Line, Name, Names
from controller.apiserver.resources.hardware import DeviceNumber
from dataplane.cgroups import parse_cpus
from dataplane.config import Settings, Strict
from dataplane.topology.values import DeviceKind

PositiveS = Annotated[float, Meta(gt=0, le=1e6)]
Positive = Annotated[int, Meta(ge=1, le=1 << 53)]
WarmModule = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$(?!\n)", max_length=100)]
Uid = Annotated[int, Meta(ge=1000, le=(1 << 32) - 3)]
UidCount = Annotated[int, Meta(ge=1, le=1 << 20)]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\x00]+$", max_length=4096)]
CpuList = Annotated[str, Meta(pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$(?!\n)", max_length=1024)]
"""CPU list in Linux notation: 0-3,8."""


class UnitSettings(Strict, frozen=True):
    """A type of units, and each unit's resources."""

    name: Name
    """Name in tasks and results."""
    count: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    """Number of units; null: as many as fit after the types before this one."""
    cores: Annotated[int, Meta(ge=1, le=4096)] = 1
    """Whole cores of each unit, exclusively."""
    core_numbers: Annotated[tuple[CpuList, ...], Meta(max_length=4096)] = ()
    """Core numbers, a list for each unit, such as ["0-4", "5-9"]; `count` and `cores` follow from it."""
    cpu_milli: Positive | None = None
    """CPU time of each unit in thousandths of a core, if less than its cores."""
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 53)] = 0
    """Memory of each unit; 0: none is reserved, and no limit holds."""
    devices: Annotated[int, Meta(ge=0, le=256)] = 0
    """Devices of each unit, exclusively."""
    device_kind: DeviceKind = DeviceKind.GPU
    """Kind of the devices."""
    device_models: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    """Acceptable models, such as "NVIDIA A100 MIG 1g.5gb" of instances of a divided device; empty: all."""
    device_thousandths: Annotated[int, Meta(ge=1, le=1000)] = 1000
    """Part of a device that each unit has, with `devices: 1`: a time slice, which CUDA's MPS limits where it runs."""
    device_numbers: Annotated[tuple[tuple[DeviceNumber, ...], ...], Meta(max_length=4096)] = ()
    """Device numbers, a list for each unit, as in `millrace devices list`."""

    def __post_init__(self) -> None:
        if self.core_numbers and self.device_numbers and len(self.core_numbers) != len(self.device_numbers):
            cores, devices = len(self.core_numbers), len(self.device_numbers)
            raise ValueError(f"core_numbers are for {cores} units, device_numbers for {devices}")
        if self.device_thousandths < 1000 and (self.devices != 1 or self.device_numbers):
            raise ValueError("device_thousandths: a unit with part of a device has `devices: 1`, not by number")
        if any(not parse_cpus(text) for text in self.core_numbers):
            raise ValueError("core_numbers: a list of cores is empty")

    @property
    def wanted(self) -> int | None:
        """Wanted number of units; None: as many as fit."""
        if self.core_numbers or self.device_numbers:
            return len(self.core_numbers or self.device_numbers)
        return self.count


class ControlGroups(StrEnum):
    """Use of control groups to limit jobs."""

    AUTO = "auto"
    """If this user may create them; otherwise only affinity and rlimits, which is reported."""
    ALWAYS = "always"
    """Do not start without them."""
    NEVER = "never"
    """Only affinity and rlimits."""


class LocalSettings(Settings, frozen=True):
    """Jobs as processes of this machine."""

    cores: CpuList | None = None
    """Cores of the machine for this centre; null: all that this process may use."""
    cpu_milli: Positive | None = None
    """CPU time of all jobs together in thousandths of a core; null: no limit but their cores."""
    memory_bytes: Positive | None = None
    """Memory of all jobs together; null: the machine's."""
    processes: Annotated[int, Meta(ge=1, le=1 << 22)] = 4096
    """Most processes and threads of a job, if it has a control group or its own user."""
    network_namespace: str | None = None
    """Network namespace of jobs: a path, a name of `ip netns`, or FABRIC:HOST of a kernel fabric; null: the agent's."""
    user: str | None = None
    """User that all jobs run as, which needs root; null: under root each job has its own user number."""
    uids: tuple[Uid, UidCount] | None = None
    """First number and count of the users (and groups) of jobs if the agent is root, one each.

    Null: 4096 from 1,900,000,000, or 512 from 60,600 if the machine has no more than 65,536.
    """
    unsafe_same_user: bool = False
    """Run jobs as the agent's own user, with access to all its files, tokens too; submitters gain its rights."""
    hidden: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """Files and folders hidden from jobs, besides /run, the agent's home, its state folder and token files."""
    shown: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """Exceptions, which jobs see read-only: programs in the agent's home, for instance."""
    writable: Annotated[tuple[AbsolutePath, ...], Meta(max_length=64)] = ()
    """Folders, besides their own, that jobs may write to as far as their user may; all else is read-only."""
    scratch_bytes: Annotated[int, Meta(ge=1 << 16, le=1 << 53)] = 1 << 30
    """Capacity of each of a job's own /tmp, /var/tmp and /dev/shm; they are memory, and count as the job's."""
    control_groups: ControlGroups = ControlGroups.AUTO
    """Use of control groups to limit jobs."""
    look_s: PositiveS = 5.0
    """Polling interval of the machine's resources."""
    warm: Annotated[tuple[WarmModule, ...], Meta(max_length=16)] = ()
    """Modules that are slow to import, such as torch, for a warm process that forks the runners of probes.

    It runs as the agent's user, which requires `unsafe_same_user`.
    """

    def __post_init__(self) -> None:
        if self.unsafe_same_user and (self.user is not None or self.uids is not None):
            raise ValueError("unsafe_same_user: jobs run as the agent's user, not as `user` or with `uids`")
        if self.user is not None and self.uids is not None:
            raise ValueError("user: all jobs run as it, none with a number of `uids`")
        if self.warm and not self.unsafe_same_user:
            raise ValueError("warm: needs unsafe_same_user, as the warm process runs probes as the agent's user")


class OnStop(StrEnum):
    """Fate of jobs when the agent stops."""

    KEEP = "keep"
    """They run on: the agent adopts them when it starts again."""
    STOP = "stop"
    """They are ended, and their tasks given back to be dispatched elsewhere."""


class TrialSettings(Settings, frozen=True):
    """Trial of probe kernels on each unit type."""

    kernels: Annotated[tuple[Name, ...], Meta(max_length=4096)] | None = None
    """Kernels to try; null: all of the library."""
    limit_s: PositiveS = 120.0
    """Time limit of one job that tries kernels on one unit; another job tries those that it does not come to."""
    kernel_s: PositiveS = 30.0
    """Time limit of one kernel."""


class SparkSettings(Settings, frozen=True):
    """Apache Spark, for statements that are not split; the jobs' interpreter needs pyspark, their machine Java 17."""

    master: str | None = None
    """A cluster that runs: spark://HOST:PORT; null: a task starts one, with a worker for each of its units."""
    settings_file: str | None = None
    """Properties of that cluster's clients, such as its secret (mode 600)."""

    def __post_init__(self) -> None:
        if self.settings_file is not None and self.master is None:
            raise ValueError("spark: a settings_file is of a master")


class SqlSettings(Settings, frozen=True):
    """Executors of the operators of SQL tasks."""

    workers: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=300)], ...], Meta(max_length=256)] = ()
    """Running workers (`millrace accel worker`), HOST:PORT each, near ones next to each other.

    A task uses as many as it has units. Without any, each task starts its own on its units.
    """
    secret_file: str | None = None
    """Their secret (mode 600)."""
    job_service: str | None = None
    """Address at which the workers join the job whose switches add up sums: unix:PATH, HOST:PORT, or plain:HOST:PORT.

    The workers are those of the centre's `hosts`, in this order.
    """
    spark: SparkSettings | None = None
    """Executor of statements that are not split; null: each in one DuckDB."""
    stand_in: DeviceKind | None = None
    """For trials without the hardware: report a device of this kind in each unit.

    Operators of SQL that are planned for it run by torch on the CPU, and say so; other tasks find no device.
    """

    def __post_init__(self) -> None:
        if bool(self.workers) is (self.secret_file is None):
            raise ValueError("sql: workers need a secret_file, and a secret_file is of workers")


class MetricsSettings(Strict, frozen=True):
    """Endpoint of the agent's Prometheus metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9469


FIXED: Final = ("centre", "state", "api", "token_file", "metrics")
"""Keys that SIGHUP does not change."""


class CentreSettings(Settings, frozen=True):
    """Settings of `millrace centre serve`."""

    centre: Name
    """The centre's name."""
    state: str
    """State folder: jobs, their results, the reported configuration."""
    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    """The file of the centre's token (mode 600); null: the one that MILLRACE_TOKEN_FILE names."""
    topology: str | None = None
    """A topology file or a bundled one's name, against which `hosts` are checked."""
    hosts: Names = ()
    """Hosts of the topology that make up this centre; without any, the network's state does not apply to it."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Labels of the Centre resource, if this agent creates it."""
    units: Annotated[tuple[UnitSettings, ...], Meta(max_length=256)] = (UnitSettings(name="core"),)
    """Division of the resources; earlier types choose first."""
    local: LocalSettings = LocalSettings()
    """Settings for jobs as processes of this machine."""
    trial: TrialSettings = TrialSettings()
    """Trials of probe kernels."""
    sql: SqlSettings = SqlSettings()
    """Executors of the operators of SQL tasks."""
    metrics: MetricsSettings | None = None
    """Endpoint of Prometheus metrics; null: none."""
    report_s: PositiveS | None = None
    """Time between two reports; null: a quarter of the lease."""
    look_s: PositiveS = 2.0
    """Polling interval of all jobs; engines that can report their ends at once."""
    most_waiting: Annotated[int, Meta(ge=0, le=100_000)] = 64
    """Most tasks that wait here for units; more are given back."""
    wait_s: PositiveS = 300.0
    """Longest wait of a task for units before it is given back."""
    limit_s: PositiveS = 86_400.0
    """Time limit of a task that sets none."""
    probe_limit_s: PositiveS = 300.0
    """Time limit of a probe."""
    probe_counts: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 20)], ...], Meta(min_length=1, max_length=64)] = (
        *(1, 2, 4, 8),
        16,
    )
    """Unit counts for a probe that leaves the number to the centre: the largest that is free, or else one unit."""
    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0
    """Time between asking a job to end and killing it."""
    output_limit_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    """Most bytes kept of a job's output, and of its errors: the beginning and the end."""
    kept_outputs: Annotated[int, Meta(ge=0, le=100_000)] = 50
    """Ended jobs whose output `millrace task logs` still shows after their folders are removed; 0: none.

    Beyond it, the oldest of the project or user with the most is dropped.
    """
    kept_output_bytes: Annotated[int, Meta(ge=0, le=1 << 40)] = 128 << 20
    """Bytes of these outputs together, in equal shares: of a longer output the beginning and the end are kept."""
    jobs_folder: str | None = None
    """Parent of jobs' folders, for Slurm and Ray on a file system that the nodes share.

    Null: in the state folder, which no other user can enter.
    """
    on_stop: OnStop = OnStop.KEEP
    """Fate of jobs when this agent stops."""
    python: str | None = None
    """Interpreter for jobs, with Millrace in it for probes; null: this agent's own, and its Millrace."""
    secrets: str | None = None
    """The folder of secrets, PROJECT/NAME in it (modes 700 and 600); null: no task gets any."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of jobs in addition to those of their tasks; nothing of the agent's own environment is passed."""

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.units]
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise ValueError(f"units: {twice} appears twice")
        if not self.units:
            raise ValueError("units: at least one type is needed")
