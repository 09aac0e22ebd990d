"""The active daemon of a pair fails in one of several ways, and how long it takes until the other one acts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from controller.common.errors import PathError
from dataplane.local.deadline import LocalDeadline
from tests.black_hole import BlackHole
from tests.controller.apiserver.storage.etcd_process import Etcd
from tests.pairs.daemons import FLOWS, WAYS, Pairs
from tests.waiting import wait_until

_ASK_S = 0.2
_PIN_S = 0.05
_LIMIT_S = 30.0


class Failure(StrEnum):
    """A way to fail."""

    KILL = "kill"
    """SIGKILL."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT later."""
    PARTITION = "partition"
    """Cut off from the storage of the lease (etcd), with everything else reachable."""


class Setting:
    """Pairs, and each holder's way to the storage, None in SQLite."""

    def __init__(self, pairs: Pairs, ways: dict[str, BlackHole]) -> None:
        self.pairs, self._ways = pairs, ways
        self._number = 0
        self._failed: list[tuple[str, Failure]] = []

    def take_over(self, kind: str, failure: Failure) -> float:
        """Make the active one of a pair fail; return after how long (s) switches accept what the other one wants.

        For a path server that is a pin that it is asked for, for a controller one that it learns of meanwhile.
        """
        pairs = self.pairs
        wait_until(lambda: pairs.active(kind) is not None, f"no active {kind}")
        wait_until(lambda: pairs.is_standing_by(pairs.other(str(pairs.active(kind)))), f"no {kind} stands by")
        name = str(pairs.active(kind))
        token, routes_token = pairs.token(name), pairs.routes().token
        self._fail(name, failure)
        failed_s = time.monotonic()
        if kind == "paths":
            number = self._pin(routes_token)
            pinned_s = time.monotonic()
            wait_until(lambda: pairs.first_write_s(pinned_s, 0) is not None, number)
            acted_s = pairs.first_write_s(pinned_s, 0)
        else:
            # Further pins until the other one has something to do: one that is cut off writes until its lease ends.
            limit = LocalDeadline(_LIMIT_S, "a takeover")
            while (acted_s := pairs.first_write_s(failed_s, token)) is None:
                assert not limit.has_passed(), self._pin(0)
                self._pin(0)
                time.sleep(_PIN_S)
        assert acted_s is not None, "it was waited for"
        return acted_s - failed_s

    def recover(self) -> None:
        """Let failed daemons go on, or start them again."""
        for name, failure in self._failed:
            match failure:
                case Failure.KILL:
                    self.pairs.daemons[name].start()
                case Failure.STOP:
                    self.pairs.daemons[name].release()
                case Failure.PARTITION:
                    self._ways[name].restore()
        self._failed.clear()

    def _fail(self, name: str, failure: Failure) -> None:
        self._failed.append((name, failure))
        match failure:
            case Failure.KILL:
                self.pairs.daemons[name].kill()
            case Failure.STOP:
                self.pairs.daemons[name].pause()
            case Failure.PARTITION:
                self._ways[name].swallow()

    def _pin(self, token: int) -> str:
        """Move a flow as soon as a path server with a newer token does so; return which."""
        self._number = (self._number + 1) % len(FLOWS)
        flow = FLOWS[self._number]
        while True:
            try:
                routes = self.pairs.ask(lambda client: client.current_routes(), _ASK_S)
                if routes.token <= token:
                    continue
                present = {pin.flow: pin.switches for pin in routes.pins}
                self.pairs.pin(self._number, 1 if present[flow] == WAYS[0] else 0)
            except PathError:
                continue
            return f"{flow} does not reach the switches"


@contextmanager
def running(folder: Path, storage: str) -> Iterator[Setting]:
    """Run both pairs with leases in `sqlite` or `etcd`, each daemon with a way of its own to etcd."""
    with ExitStack() as stack:
        ways: dict[str, BlackHole] = {}
        blocks: dict[str, dict[str, Any]]
        if storage == "etcd":
            (folder / "etcd").mkdir()
            address = stack.enter_context(Etcd(folder / "etcd"))
            port = int(address.rpartition(":")[2])
            ways = {name: stack.enter_context(BlackHole(port)) for name in Pairs.names()}
            blocks = {name: {"etcd": {"addresses": [way.address]}} for name, way in ways.items()}
        else:
            blocks = {name: {"sqlite": f"{folder}/lease.sqlite"} for name in Pairs.names()}
        pairs = Pairs(folder, blocks)
        stack.enter_context(pairs.running())
        setting = Setting(pairs, ways)
        for kind in ("paths", "controller"):
            wait_until(lambda kind=kind: pairs.active(kind) is not None, f"no active {kind}")  # type: ignore[misc]
        for number in range(len(FLOWS)):
            pairs.pin(number, number % 2)
        pairs.until_settled()
        try:
            yield setting
        finally:
            setting.recover()
