"""Hosts of a pool in this process, on UNIX sockets of a test's folder."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from controller.memory.host.computing import Computer
from controller.memory.host.server import Host
from controller.memory.host.settings import HostSettings, TierKind, TierSettings
from controller.memory.host.store import Store
from controller.memory.pool.deciding import Decider, rule_of
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.settings import MemoryPoolSettings, PoolHost, Rule
from controller.memory.pool.values import Writes

BLOCK = 4096


@dataclass(frozen=True)
class Machine:
    """A host to be: cores, and blocks of its fast memory, of a cache below it, and of its home."""

    name: str
    cores: int = 1
    fast: int = 4
    below: int = 0
    home: int = 64
    in_file: bool = True

    def settings(self, folder: Path, address: str = "") -> HostSettings:
        """Return its settings."""
        tiers = []
        if self.cores:
            tiers.append(TierSettings(name="fast", kind=TierKind.DRAM, capacity_bytes=self.fast * BLOCK))
        if self.below:
            tiers.append(TierSettings(name="below", kind=TierKind.DRAM, capacity_bytes=self.below * BLOCK))
        if self.home and self.in_file:
            path = str(folder / f"{self.name}.blocks")
            tiers.append(TierSettings(name="file", kind=TierKind.FILE, capacity_bytes=self.home * BLOCK, path=path))
        elif self.home:
            tiers.append(TierSettings(name="memory", kind=TierKind.DRAM, capacity_bytes=self.home * BLOCK))
        address = address or f"unix:{folder}/{self.name}.sock"
        return HostSettings(name=self.name, tiers=tuple(tiers), address=address, block_bytes=BLOCK, cores=self.cores)


COMPUTER = Computer()


@dataclass
class Lab:
    """Running hosts by name, which a test may stop and start again."""

    folder: Path
    machines: dict[str, Machine]
    running: dict[str, tuple[Store, Host]] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a host."""
        settings = self.machines[name].settings(self.folder)
        store = Store(settings)
        self.running[name] = store, Host(settings, store, COMPUTER)

    def stop(self, name: str) -> None:
        """Stop a host: its memory is gone, its file stays."""
        store, host = self.running.pop(name)
        host.close()
        store.close()

    def store(self, name: str) -> Store:
        """Return a host's blocks."""
        return self.running[name][0]


@contextmanager
def lab_of(folder: Path, *machines: Machine) -> Iterator[Lab]:
    """Yield running hosts."""
    lab = Lab(folder, {machine.name: machine for machine in machines})
    try:
        for machine in machines:
            lab.start(machine.name)
        yield lab
    finally:
        for name in list(lab.running):
            lab.stop(name)


def pool_settings(
    folder: Path,
    names: Sequence[str],
    *,
    rule: Rule = "data-local",
    writes: Writes = Writes.THROUGH,
    room_s: float = 0.2,
) -> MemoryPoolSettings:
    """Return settings of a pool over hosts in a folder; what is down is called again soon."""
    return MemoryPoolSettings(
        hosts=tuple(PoolHost(name=name, address=f"unix:{folder}/{name}.sock") for name in names),
        address=f"unix:{folder}/pool.sock",
        rule=rule,
        writes=writes,
        retry_ns=20_000_000,
        room_ns=round(room_s * 1e9),
    )


@contextmanager
def pool_of(
    folder: Path,
    *machines: Machine,
    rule: Rule = "data-local",
    writes: Writes = Writes.THROUGH,
    decider: Decider | None = None,
) -> Iterator[tuple[MemoryPool, Lab]]:
    """Yield a pool over running hosts, and these."""
    with ExitStack() as stack:
        lab = stack.enter_context(lab_of(folder, *machines))
        settings = pool_settings(folder, [machine.name for machine in machines], rule=rule, writes=writes)
        pool = stack.enter_context(MemoryPool(settings, decider or Decider(rule_of(rule))))
        yield pool, lab


def content(key: int, version: int = 0) -> bytes:
    """Return a block's content, other for each key and version."""
    return (f"{key}/{version} " * BLOCK).encode()[:BLOCK]


class Relay:
    """Stands before a host's socket and passes everything on; once told to, it dies after more bytes of answers.

    `cut` counts bytes from the host to its callers: within a header, a block, or between two answers.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self._target = target
        self._left: int | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._path = path
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, after_bytes: int) -> None:
        """Die once this many more bytes were answered."""
        with self._lock:
            self._left = after_bytes

    def close(self) -> None:
        """End all connections, and listen no more."""
        self._path.unlink(missing_ok=True)
        with self._lock:
            connections, self._open = self._open, []
        for connection in (self._listening, *connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(self._target))
                with self._lock:
                    self._open += [near, far]
                threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, destination: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    left = self._left
                    if is_answer and left is not None:
                        data, self._left = data[:left], left - len(data)
                destination.sendall(data)
                if is_answer and left is not None and self._left is not None and self._left <= 0:
                    self.close()
                    return
        with suppress(OSError):
            destination.shutdown(socket.SHUT_RDWR)
