"""Settings of a node's manager."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import LabelName, LabelValue, Name
from controller.apiserver.resources.hardware import DeviceNumber
from controller.workloads.nodes.deciding.limits import PodLimits
from controller.workloads.nodes.deciding.values import IdleTerms, Terms
from controller.workloads.nodes.runtimes.settings import RuntimeSettings
from dataplane.clock import NS_PER_S
from dataplane.config import Settings, Strict
from dataplane.nic.managed.messages import GrantKind, QueueNumber

PositiveS = Annotated[float, Meta(gt=0, le=1e6)]
Bytes = Annotated[int, Meta(ge=1, le=1 << 60)]


class OnStop(StrEnum):
    """Fate of containers when the manager stops."""

    KEEP = "keep"
    """They run on: the manager adopts them when it starts again, and without one the lease ends them."""
    STOP = "stop"
    """They are stopped, and their pods given back to be placed elsewhere."""


class RestartSection(Settings, frozen=True):
    """Restarts of containers that end, or fail to start."""

    first_wait_s: PositiveS = 1.0
    """Doubled with each failure in a row."""
    longest_wait_s: PositiveS = 60.0
    """The longest such wait."""
    young_s: PositiveS = 30.0
    """A container that ran for this long starts over with the first wait."""

    @property
    def terms(self) -> Terms:
        """Return the section's values as decisions use them."""
        first, longest, young = (
            round(seconds * NS_PER_S) for seconds in (self.first_wait_s, self.longest_wait_s, self.young_s)
        )
        return Terms(first, longest, young)


class IdleSection(Settings, frozen=True):
    """Thresholds of idle pods, how long they stay, and exemptions from that."""

    limit_s: PositiveS | None = 691_200.0
    """Idle time after which a pod without an `idle_limit` of its own ends; null: it stays."""
    cpu_share: Annotated[float, Meta(ge=0, le=64)] = 0.01
    """CPU share of one CPU above which a container is not idle."""
    network_bps: Annotated[int, Meta(ge=0)] = 10_000
    """Traffic of its network namespace, both directions together, above which a container is not idle."""
    device_share: Annotated[float, Meta(ge=0, le=1)] = 0.005
    """Share of a device's compute time above which a pod that holds it is not idle; drivers count in hundredths."""
    unknown_device_is_busy: bool = True
    """A pod with a device that does not report its use never counts as idle; false: its CPU time and traffic decide."""
    slow_start_s: PositiveS = 5.0
    """Start time, fetching included, above which an image counts as slow to start."""
    last_copy_factor: Annotated[float, Meta(ge=1, le=1e6)] = 4.0
    """The last container of an image that starts slowly may be idle this many times longer."""

    @property
    def terms(self) -> IdleTerms:
        """Return the section's values as decisions use them."""
        return IdleTerms(
            cpu_share=self.cpu_share,
            network_bps=self.network_bps,
            device_share=self.device_share,
            unknown_device_is_busy=self.unknown_device_is_busy,
            limit_s=self.limit_s,
            slow_start_ns=round(self.slow_start_s * NS_PER_S),
            last_copy_factor=self.last_copy_factor,
        )


class LimitsSection(Strict, frozen=True):
    """Limits of pods."""

    memory_bytes: Bytes = 2 << 30
    """Memory of a pod that requests none."""
    most_memory_bytes: Bytes | None = None
    """Most memory that a pod may request; null: the node's memory."""
    processes: Annotated[int, Meta(ge=16, le=1 << 22)] = 4096
    """Processes and threads of a pod."""
    disk_bytes: Bytes = 10 << 30
    """Bytes that a pod's containers may write to their own layers; a pod that exceeds them has failed."""

    def of(self, memory_bytes: int) -> PodLimits:
        """Return the limits as decisions use them, on a node with this much memory; 0: unknown."""
        most = self.most_memory_bytes or memory_bytes or None
        return PodLimits(self.memory_bytes, most, self.processes, self.disk_bytes)


class ImagesSection(Settings, frozen=True):
    """Retention of images that no pod of this node uses; only those that this node has fetched."""

    kept_s: PositiveS = 604_800.0
    """Time without use, as far as this manager has seen it."""
    kept_bytes: Bytes = 50 << 30
    """Total bytes of images above which unused ones are removed, the longest unused first."""


class MpsSection(Strict, frozen=True):
    """CUDA's multi-process service, which limits pods with shares of NVIDIA's devices while its daemon runs."""

    pipes: str = "/tmp/nvidia-mps"  # noqa: S108 - the service's own default
    """Folder of its pipes, CUDA_MPS_PIPE_DIRECTORY of the daemon."""
    shared_memory: str = "/dev/shm"  # noqa: S108 - Linux's
    """Folder that the daemon has at /dev/shm; those pods have it there, too."""
    cdi: str = "/var/run/cdi"
    """Folder of CDI files that the runtime reads."""


class QueueGrant(Strict, frozen=True):
    """Queues of a network device that processes of this machine may claim, one holder each."""

    device: Annotated[str, Meta(min_length=1, max_length=127)]
    """A device of the node's network namespace."""
    queues: Annotated[tuple[QueueNumber, ...], Meta(min_length=1, max_length=256)] = (0,)
    """Numbers of the queues; a claim of rings gets one of them, of AF_XDP all."""
    kind: GrantKind = "packet_v2"
    """Transport: packet_v2 or packet_v3 (rings beside the kernel's stack), or xdp, which takes all of the device's
    frames from the kernel."""
    users: tuple[str | Annotated[int, Meta(ge=0, le=(1 << 32) - 2)], ...] = ()
    """Names or numbers of users who may claim them; none: this manager's user and root."""
    jobs: tuple[Annotated[str, Meta(min_length=1, max_length=100)], ...] = ()
    """In-network jobs for which they may be claimed; none: any, or none at all."""


class NicSection(Settings, frozen=True):
    """Polled queues of network devices: where processes report and claim them."""

    socket: str | None = None
    """UNIX socket; null: nic-NODE.sock in the user's own folder of sockets, which no other user can enter."""
    grants: tuple[QueueGrant, ...] = ()
    """Queues that may be claimed."""
    period_s: Annotated[float, Meta(ge=0.05, le=60)] = 1.0
    """Time between two reports of a process."""
    most_processes: Annotated[int, Meta(ge=1, le=4096)] = 256
    """Most processes that may be connected."""
    most_of_user: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Most of them of a user other than this manager's and root."""


class NodeSettings(Settings, frozen=True):
    """Settings of `millrace node serve`."""

    node: Name
    """The node's name: a host of the topology."""
    state: str
    """State folder: the lock, the lease."""
    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    """The file of the node's token (mode 600); null: the one that MILLRACE_TOKEN_FILE names."""
    runtime: RuntimeSettings = RuntimeSettings()
    """Container runtime."""
    secrets: str | None = None
    """The folder of secrets, PROJECT/NAME in it (modes 700 and 600); null: no pod gets any."""
    topology: str | None = None
    """Topology file or bundled name; its host of this name defines the hardware; null: the hardware found here."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Labels of the Node resource, if this manager creates it."""
    devices: dict[DeviceNumber, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Devices by number: paths in /dev, or CDI names, for a container that holds a share of the device."""
    mps: MpsSection | None = None
    """Enforcement of shares of NVIDIA's devices; null: they are only admitted."""
    network_namespace: str | None = None
    """Network namespace of pods: a path, a name of `ip netns`, or FABRIC:HOST of a kernel fabric; null: none."""
    interface: str | None = None
    """The host's network device in there, whose counters are reported; null: the only one, if there is just one."""
    link_rate_bps: Annotated[int, Meta(ge=1)] | None = None
    """Rate of the host's link; null: the topology's, else the device's."""
    nic: NicSection | None = NicSection()
    """Polled queues of network devices; null: the node neither knows nor grants any."""
    report_s: PositiveS | None = None
    """Time between two reports; null: a quarter of the lease."""
    look_s: PositiveS = 10.0
    """Polling interval of all containers; their ends are noticed at once."""
    restart: RestartSection = RestartSection()
    """Restarts of containers."""
    limits: LimitsSection = LimitsSection()
    """Limits of pods."""
    images: ImagesSection = ImagesSection()
    """Images that no pod uses."""
    idle: IdleSection = IdleSection()
    """Thresholds of idleness."""
    at_once: Annotated[int, Meta(ge=1, le=1024)] = 32
    """Most pods handled at the same time."""
    pulls: Annotated[int, Meta(ge=1, le=64)] = 4
    """Most images fetched at the same time."""
    on_stop: OnStop = OnStop.KEEP
    """Fate of containers when this manager stops."""
    stop_s: PositiveS = 30.0
    """Longest time that `on_stop: stop` may take."""
