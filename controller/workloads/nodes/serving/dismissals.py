"""Orders of the node itself to end pods, kept in a file: a restarted manager must not run a dismissed pod again."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.apiserver.resources.pod import Phase

LOGGER: Final = logging.getLogger("millrace.node")


class Dismissal(msgspec.Struct, frozen=True):
    """Order to end a pod bound here: its final phase, the reason, and the longest grace, None: its own."""

    uid: str
    epoch: int
    phase: Phase
    reason: str
    grace_ns: int | None = None

    @property
    def is_final(self) -> bool:
        """Return whether the pod has ended for good, and is not placed elsewhere."""
        return self.phase is not Phase.PENDING


class Dismissals:
    """Dismissals by pod and binding; confined to one event loop.

    The file has the final ones: pods that are only to leave this node run on if its manager returns in time.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._orders = {(order.uid, order.epoch): order for order in _read(file)}

    def of(self, uid: str, epoch: int) -> Dismissal | None:
        """Return a pod's dismissal."""
        return self._orders.get((uid, epoch))

    def add(self, order: Dismissal) -> None:
        """Add a dismissal; a final one keeps its phase and reason, whatever follows, but may get a shorter grace."""
        before = self.of(order.uid, order.epoch)
        if before is not None and before.is_final:
            graces = [grace for grace in (before.grace_ns, order.grace_ns) if grace is not None]
            order = replace(before, grace_ns=min(graces, default=None))
        self._orders[order.uid, order.epoch] = order
        if order.is_final and order != before:
            self._write()

    def keep(self, bound: Mapping[str, int]) -> None:
        """Forget all pods but those of these uids with these epochs."""
        gone = [self._orders.pop(key) for key in tuple(self._orders) if bound.get(key[0]) != key[1]]
        if any(order.is_final for order in gone):
            self._write()

    def _write(self) -> None:
        new = self._file.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode([order for order in self._orders.values() if order.is_final]))
            new.rename(self._file)
        except OSError as error:
            LOGGER.warning("%s: %s", self._file, error.strerror or error)


def _read(file: Path) -> list[Dismissal]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Dismissal])
    except FileNotFoundError:
        return []  # nothing was ever dismissed
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        LOGGER.warning("%s: not read, pods that were dismissed before may run again: %s", file, error)
        return []
