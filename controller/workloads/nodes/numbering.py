"""Numbers of a node's devices, kept in its state folder: they stay the same when a device disappears or another comes.

Pods hold devices by number, and settings name their files by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.hardware import Device
from controller.workloads.nodes.errors import NodeError
from dataplane.config import Strict

FILE: Final = "devices.json"


class NumberedDevice(Strict, frozen=True):
    """A device and its address; it is gone if it was not found."""

    address: str
    device: Device


_RECORD: Final = Annotated[tuple[NumberedDevice, ...], Meta(max_length=256)]


def numbered(found: Sequence[NumberedDevice], folder: Path | None) -> tuple[NumberedDevice, ...]:
    """Return the devices with their numbers in a folder; new ones follow, missing ones are gone but keep theirs.

    Without a folder they are numbered as found. Raise NodeError for a file that cannot be read or written.
    """
    file = None if folder is None else folder / FILE
    known = () if file is None else _read(file)
    here = {each.address: each for each in found}
    before = {each.address for each in known}
    kept = [here.get(each.address) or _gone(each) for each in known]
    devices = [*kept, *(each for each in found if each.address not in before)]
    made = tuple(replace(each, device=replace(each.device, number=number)) for number, each in enumerate(devices))
    if file is not None and made != known:
        _write(file, made)
    return made


def _gone(device: NumberedDevice) -> NumberedDevice:
    return replace(device, device=replace(device.device, gone=True))


def _read(file: Path) -> tuple[NumberedDevice, ...]:
    try:
        record: tuple[NumberedDevice, ...] = msgspec.json.decode(file.read_bytes(), type=_RECORD)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise NodeError(
            f"{file}: {reason}: without it, devices are numbered anew: remove it once no pod runs"
        ) from error
    return record


def _write(file: Path, devices: tuple[NumberedDevice, ...]) -> None:
    new = file.with_suffix(".new")
    try:
        new.write_bytes(msgspec.json.encode(devices))
        new.rename(file)
    except OSError as error:
        raise NodeError(f"{file}: {error.strerror or error}") from error
