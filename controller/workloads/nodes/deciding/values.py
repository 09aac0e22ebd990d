"""Inputs and outputs of a node manager's decisions: wanted pods, running containers, the lease, and the next steps.

Times are nanoseconds of the machine's own clock since its boot (CLOCK_BOOTTIME): no wall clock is ever compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.resources.pod import Phase, Pod, Restart
from controller.workloads.nodes.runtimes.base import (
    CONTAINER_LABEL,
    EPOCH_LABEL,
    POD_LABEL,
    UID_LABEL,
    ContainerPhase,
    ContainerState,
)
from dataplane.clock import NS_PER_S

ATTEMPT_LABEL: Final = "millrace.attempt"
"""Label of a container: number of its earlier starts in the same binding."""

SHARES_LABEL: Final = "millrace.shares"
"""Label of a container: enforcement of its shares of devices."""

MANAGER_LABEL: Final = "millrace.manager"
"""Label of a container: identity of the state folder whose manager created it; others leave it alone."""

_LONGEST_MARGIN_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Terms:
    """Waits before containers that end or cannot start are tried again, and the grace of unwanted ones."""

    first_wait_ns: int = NS_PER_S
    longest_wait_ns: int = 60 * NS_PER_S
    young_ns: int = 30 * NS_PER_S
    """A container that ran for this long starts over with the first wait."""
    stranger_grace_ns: int = 2 * NS_PER_S

    def wait_ns(self, failures: int) -> int:
        """Return the wait after this many failures in a row."""
        return min(self.first_wait_ns << min(max(failures - 1, 0), 40), self.longest_wait_ns)


@dataclass(frozen=True, slots=True)
class IdleTerms:
    """Thresholds of idleness (CPU share of one CPU, bit/s, share of a device's time), and how long idle pods stay.

    `limit_s` is for pods without a limit of their own, None for no limit; some may be idle
    `last_copy_factor` times as long.
    """

    cpu_share: float = 0.01
    network_bps: int = 10_000
    device_share: float = 0.005
    unknown_device_is_busy: bool = True
    limit_s: float | None = None
    slow_start_ns: int = 5 * NS_PER_S
    last_copy_factor: float = 4.0


@dataclass(frozen=True, slots=True)
class Lease:
    """Time until which pods may run here: `length_ns` from the beginning of the last acknowledged report."""

    end_ns: int
    length_ns: int

    @property
    def kill_ns(self) -> int:
        """Time at which running containers are killed: early enough that nothing is left at the end."""
        return self.end_ns - min(_LONGEST_MARGIN_NS, self.length_ns // 10)

    def stop_ns(self, grace_ns: int) -> int:
        """Return when to begin a graceful stop; it takes at most a quarter of the lease."""
        return self.kill_ns - min(grace_ns, self.length_ns // 4)

    def is_over(self, now_ns: int) -> bool:
        """Return whether nothing may run any more."""
        return now_ns >= self.kill_ns


@dataclass(frozen=True, slots=True)
class Record:
    """Memory of a container of a pod: its failures in a row, and when it may start again.

    `is_fenced` means that the lease ended it. `start_ns` is the duration of its start.
    """

    failures: int = 0
    not_before_ns: int = 0
    attempt: int = 0
    problem: str = ""
    is_fenced: bool = False
    start_ns: int | None = None


NO_RECORD: Final = Record()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod bound to this node. `going` is its state after it has stopped, None if it should run."""

    name: str
    uid: str
    epoch: int
    containers: tuple[str, ...]
    restart: Restart
    grace_ns: int
    going: Phase | None = None
    reasons: tuple[str, ...] = ()
    records: Mapping[str, Record] = field(default_factory=dict)
    restart_limit: int | None = None

    @classmethod
    def of(cls, pod: Pod, records: Mapping[str, Record]) -> Wanted:
        """Return the demands of a pod's resource on its node."""
        status, deleting = pod.status, pod.metadata.deleting_ns is not None
        going = None
        if deleting or status.phase is Phase.STOPPING:
            going = Phase.PENDING if deleting else (status.then or Phase.PENDING)
        return cls(
            pod.metadata.name,
            pod.metadata.uid,
            status.epoch,
            tuple(container.name for container in pod.spec.containers),
            pod.spec.restart,
            round(getattr(pod.spec, "stop_grace_s", 10.0) * NS_PER_S),
            going,
            status.reasons if going is not None else (),
            records,
            pod.spec.restart_limit,
        )


@dataclass(frozen=True, slots=True)
class Actual:
    """An existing container of this node, by its labels; empty and 0 for missing ones."""

    id: str
    pod: str
    uid: str
    epoch: int
    container: str
    attempt: int
    phase: ContainerPhase
    exit_code: int | None
    state: ContainerState

    @classmethod
    def of(cls, state: ContainerState) -> Actual:
        """Return a container according to its labels."""
        labels = state.labels
        return cls(
            state.id,
            labels.get(POD_LABEL, ""),
            labels.get(UID_LABEL, ""),
            _number(labels.get(EPOCH_LABEL, "")),
            labels.get(CONTAINER_LABEL, ""),
            _number(labels.get(ATTEMPT_LABEL, "")),
            state.phase,
            state.exit_code,
            state,
        )

    @property
    def runs(self) -> bool:
        """True if it has processes."""
        return self.phase is ContainerPhase.RUNNING

    @property
    def has_succeeded(self) -> bool:
        """True if it has ended successfully."""
        return self.phase is ContainerPhase.EXITED and self.exit_code == 0

    def is_of(self, wanted: Wanted) -> bool:
        """Return whether it belongs to a pod, in its present binding."""
        return (self.uid, self.epoch) == (wanted.uid, wanted.epoch) and self.container in wanted.containers


@dataclass(frozen=True, slots=True)
class Run:
    """Create and start a container."""

    container: str
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask a container to end, kill it after a time; return when it has."""

    id: str
    grace_ns: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a container that does not run."""

    id: str


@dataclass(frozen=True, slots=True)
class Release:
    """Release the pod's resources: its containers have ended, and none starts again here."""

    uid: str
    epoch: int
    phase: Phase
    reasons: tuple[str, ...] = ()


Action = Run | Stop | Remove | Release


@dataclass(frozen=True, slots=True)
class Step:
    """Next step for a pod, by name: actions of one sort, all at the same time."""

    pod: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A step for each pod that needs one, and when to look again even if nothing happens; None: only then."""

    steps: tuple[Step, ...]
    wake_ns: int | None = None


def by_pod(actual: Sequence[Actual]) -> dict[str, list[Actual]]:
    """Return containers by the names of their pods."""
    containers: dict[str, list[Actual]] = {}
    for container in actual:
        containers.setdefault(container.pod, []).append(container)
    return containers


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else 0
