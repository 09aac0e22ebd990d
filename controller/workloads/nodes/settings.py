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
from dataplane.config import Strict

PositiveS = Annotated[float, Meta(gt=0, le=1e6)]
Bytes = Annotated[int, Meta(ge=1, le=1 << 60)]
_NS_PER_S = 1_000_000_000


class OnStop(StrEnum):
    """What becomes of containers when the manager is told to stop."""

    KEEP = "keep"
    """They run on: a manager that is started again adopts them, and without one the lease ends them."""
    STOP = "stop"
    """They are stopped, and their pods given back to be placed elsewhere."""


class RestartSection(Strict, frozen=True):
    """How containers that end, or cannot be started, are started again."""

    first_wait_s: PositiveS = 1.0
    """Doubled with each failure in a row."""
    longest_wait_s: PositiveS = 60.0
    """The longest such wait."""
    young_s: PositiveS = 30.0
    """A container that ran for so long begins with the first wait again."""

    @property
    def terms(self) -> Terms:
        """They as decisions take them."""
        first, longest, young = (
            round(one * _NS_PER_S) for one in (self.first_wait_s, self.longest_wait_s, self.young_s)
        )
        return Terms(first, longest, young)


class IdleSection(Strict, frozen=True):
    """When a container counts as idle, and which ones may be so for longer than their `idle_limit_s`."""

    cpu_share: Annotated[float, Meta(ge=0, le=64)] = 0.01
    """Of one CPU: one that uses more is not idle."""
    network_bps: Annotated[int, Meta(ge=0)] = 10_000
    """Both directions together, of the network namespace that it is in: where more passes it is not idle."""
    slow_start_s: PositiveS = 5.0
    """An image whose containers took longer to start than this, its being brought included, starts slowly."""
    last_copy_factor: Annotated[float, Meta(ge=1, le=1e6)] = 4.0
    """The last container of an image that starts slowly may be idle this many times longer."""

    @property
    def terms(self) -> IdleTerms:
        """They as decisions take them."""
        slow_ns = round(self.slow_start_s * _NS_PER_S)
        return IdleTerms(self.cpu_share, self.network_bps, slow_ns, self.last_copy_factor)


class LimitsSection(Strict, frozen=True):
    """What pods may use at most."""

    memory_bytes: Bytes = 2 << 30
    """Memory of a pod that asks for none."""
    most_memory_bytes: Bytes | None = None
    """The most that a pod may ask for; null: the node's memory."""
    processes: Annotated[int, Meta(ge=16, le=1 << 22)] = 4096
    """Processes and threads of a pod."""
    disk_bytes: Bytes = 10 << 30
    """What a pod's containers may write to their own layers: one that has written more has failed."""

    def of(self, memory_bytes: int) -> PodLimits:
        """Return them as decisions take them, on a node with so much memory; 0: nobody knows how much."""
        most = self.most_memory_bytes or memory_bytes or None
        return PodLimits(self.memory_bytes, most, self.processes, self.disk_bytes)


class ImagesSection(Strict, frozen=True):
    """How long images are kept that no pod of this node uses; those that others have brought are left alone."""

    kept_s: PositiveS = 604_800.0
    """Without use, as far as this manager has seen it."""
    kept_bytes: Bytes = 50 << 30
    """When images take more, unused ones go, the longest unused first."""


class NodeSettings(Strict, frozen=True):
    """What `millrace node serve` is given."""

    node: Name
    """The node's name: a host of the topology."""
    state: str
    """A folder of its own: the lock, the lease."""
    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    token_file: str | None = None
    """The file of the node's token (mode 600); null: the one that MILLRACE_TOKEN_FILE names."""
    runtime: RuntimeSettings = RuntimeSettings()
    """What runs containers."""
    secrets: str | None = None
    """The folder of secrets, PROJECT/NAME in it (modes 700 and 600); null: no pod gets any."""
    topology: str | None = None
    """A topology file or a bundled one's name, whose host of this name says the hardware; else: what is found here."""
    labels: dict[LabelName, LabelValue] = msgspec.field(default_factory=dict)
    """Of the Node resource, where this manager makes it."""
    devices: dict[DeviceNumber, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """What a container gets that holds a share of a device, by number: paths in /dev, or CDI names."""
    network_namespace: str | None = None
    """What pods join: a path, a name of `ip netns`, or FABRIC:HOST of a fabric in the kernel; null: none."""
    interface: str | None = None
    """The host's network device in there, whose counters are reported; null: the only one, if there is one only."""
    link_rate_bps: Annotated[int, Meta(ge=1)] | None = None
    """Of the host's link; null: what the topology says, else the device."""
    report_s: PositiveS | None = None
    """Time between two reports; null: a quarter of the lease."""
    look_s: PositiveS = 10.0
    """Time between two looks at all containers; ends of containers are told at once."""
    restart: RestartSection = RestartSection()
    """Restarts of containers."""
    limits: LimitsSection = LimitsSection()
    """Of pods."""
    images: ImagesSection = ImagesSection()
    """Images that no pod uses."""
    idle: IdleSection = IdleSection()
    """What idle means."""
    at_once: Annotated[int, Meta(ge=1, le=1024)] = 32
    """So many pods are seen to at the same time."""
    pulls: Annotated[int, Meta(ge=1, le=64)] = 4
    """So many images are brought at the same time."""
    on_stop: OnStop = OnStop.KEEP
    """What becomes of containers when this manager is told to stop."""
    stop_s: PositiveS = 30.0
    """With `on_stop: stop`: how long that may take."""
