"""Enforcement of shares of devices on a node, and why some are only admitted; pure.

CUDA's multi-process service (MPS) limits threads and memory of its clients, by variables that each client reads.
It has one percentage for all devices of a client, and counts devices as the client sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

import msgspec

from controller.apiserver.resources.hardware import DeviceLimit, DeviceShare
from controller.cluster.hardware.requests import WHOLE

_NVIDIA: Final = ("/dev/nvidia", "nvidia.com/")
"""Beginnings of the files and CDI names of NVIDIA's devices."""
_OF_INSTANCE: Final = "the device is an instance of a divided one (MIG), which the service's daemon does not serve"
_MIB: Final = 1 << 20
_LIMITS: Final = tuple[DeviceLimit, ...]


@dataclass(frozen=True, slots=True)
class Mps:
    """The multi-process service of a node: the folder of its pipes, and the CDI name that puts it into a container."""

    pipes: str
    device: str


@dataclass(frozen=True, slots=True)
class ShareLimits:
    """Additions to a container for its shares, and the enforcement of each share."""

    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    limits: tuple[DeviceLimit, ...] = ()


def limits_of(
    held: Sequence[DeviceShare],
    files: Mapping[int, tuple[str, ...]],
    mps: Mps | str,
    *,
    is_stated: bool,
    instances: Set[int] = frozenset(),
) -> ShareLimits:
    """Return how the shares of devices that a pod holds are enforced; `mps` may be a reason why there is none.

    `files` are those of devices by number; with `is_stated` the devices are a topology's. `instances` are parts of
    divided devices (MIG).
    """
    shares = [share for share in held if share.thousandths < WHOLE]
    ours = [share for share in held if any(name.startswith(_NVIDIA) for name in files.get(share.number, ()))]
    reasons = {
        share.number: _OF_INSTANCE if share.number in instances else _reason(share, ours, mps, is_stated=is_stated)
        for share in shares
    }
    enforced = [share for share in shares if reasons[share.number] is None]
    limits = tuple(DeviceLimit(number=share.number, reason=reasons[share.number]) for share in shares)
    if not enforced or isinstance(mps, str):
        return ShareLimits(limits=limits)
    memory = (
        f"{index}={max(1, share.memory_bytes // _MIB)}M" for index, share in enumerate(ours) if share.memory_bytes
    )
    variables = {
        "CUDA_MPS_PIPE_DIRECTORY": mps.pipes,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{enforced[0].thousandths / 10:g}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": ",".join(memory),
    }
    return ShareLimits({name: text for name, text in variables.items() if text}, (mps.device,), limits)


def label_of(limits: tuple[DeviceLimit, ...]) -> str:
    """Return limits as a container's label: a manager that adopts it knows what it was created with."""
    return msgspec.json.encode(limits).decode()


def limits_in(label: str) -> tuple[DeviceLimit, ...]:
    """Return the limits in a label; none if it is missing or of another version."""
    try:
        return msgspec.json.decode(label, type=_LIMITS) if label else ()
    except msgspec.DecodeError:
        return ()


def _reason(share: DeviceShare, ours: Sequence[DeviceShare], mps: Mps | str, *, is_stated: bool) -> str | None:
    """Return why a share is not enforced; None if it is."""
    if is_stated:
        return "the device is a topology's"
    if share not in ours:
        return "only NVIDIA's devices can be divided here"
    if isinstance(mps, str):
        return mps
    if len({other.thousandths for other in ours}) > 1:
        return "MPS has one limit for all devices of a program, and this pod's shares differ"
    return None
