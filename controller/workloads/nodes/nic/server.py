"""The socket at which processes of this machine report the queues that they poll, and claim others.

The kernel says who a peer is (SO_PEERCRED), and when its process ends (pidfd): with it, its queues are gone. A report
that contradicts the kernel ends the connection. Everything is bounded: connections, messages and their rate, times.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import pwd
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.apiserver.resources.nic import MOST_QUEUES, NicMode, NicModeAnswer, NicModeRequest, PolledQueue
from controller.workloads.nodes.deciding.queues import Granted, GrantRule, Poller, granted
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.nic.kernel import Examination, examine, inode_of, namespace_of_process
from controller.workloads.nodes.nic.peers import Peer
from controller.workloads.nodes.nic.rows import QueueRows
from controller.workloads.nodes.settings import NicSection
from dataplane.clock import NS_PER_S
from dataplane.local.deadline import local_timeout
from dataplane.nic.managed.messages import (
    MOST_BYTES,
    VERSION,
    Claim,
    FromManager,
    FromProcess,
    Grant,
    Hello,
    ModeName,
    Order,
    Outcome,
    QueueState,
    Report,
    Welcome,
    decode_from_process,
    encode,
)
from dataplane.rpc.own_folder import own_folders, prepare
from dataplane.rpc.peers import refusal_of_peer

LOGGER: Final = logging.getLogger("millrace.node")
_CREDENTIALS: Final = struct.Struct("iII")
_SO_PEERPIDFD: Final = 77
_MOST_WAITING: Final = 64
"""Connections that have not introduced themselves yet; further ones are closed."""
_MOST_WAITING_OF_USER: Final = 16
_HELLO_S: Final = 5.0
_ORDER_S: Final = 5.0
_MOST_A_SECOND: Final = 50
"""Messages of a process; one that sends more is disconnected."""
_SILENT_NS: Final = 15 * NS_PER_S
_EXAMINE_NS: Final = 10 * NS_PER_S
_SETTLE_S: Final = 5.0
"""A new manager grants nothing before processes that polled under the last one had time to come back."""
_ORDERED: Final[Mapping[NicMode, ModeName]] = {
    NicMode.WAITING: "waiting",
    NicMode.POLLING: "polling",
    NicMode.HYBRID: "hybrid",
}
_SAID_NS: Final = 60 * NS_PER_S
_MOST_SAID: Final = 256
_WRITABLE_BY_OTHERS: Final = 0o022


class NicServer:
    """See the module; `run` until cancelled, in one event loop.

    `namespace` is the network namespace of the node's queues, None for this process's own. `on_change` is called when
    the reported queues are others than before. Raises NodeError for grants to unknown users.
    """

    def __init__(
        self,
        node: str,
        section: NicSection,
        namespace: Path | None,
        *,
        on_change: Callable[[], None] = lambda: None,
        settle_s: float = _SETTLE_S,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._node, self._section, self._on_change, self._now_ns = node, section, on_change, now_ns
        self._namespace = namespace or Path("/proc/self/ns/net")
        self._rules = _rules_of(section)
        self._others = frozenset(user for rule in self._rules for user in rule.users) - {os.geteuid(), 0}
        self._folder = None if section.socket is not None else own_folders()[0]
        self.path = Path(section.socket or f"{self._folder}/nic-{node}.sock")
        self._peers: dict[int, Peer] = {}
        self._waiting: Counter[int] = Counter()
        """Connections by user that have not introduced themselves yet."""
        self._change: asyncio.TimerHandle | None = None
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._said: dict[str, int] = {}
        self._grants_from_ns = now_ns() + round(settle_s * NS_PER_S)
        self._rows = QueueRows(self._namespace)
        self.problem = ""
        """Reason why no process can report; empty if they can."""

    async def run(self) -> None:
        """Serve until cancelled; a socket that cannot be made is a line in the log and in `problem`."""
        try:
            listening = self._listen()
        except (NodeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self.problem = f"polled queues: {self.path}: {reason}"
            LOGGER.warning("%s", self.problem)
            return
        LOGGER.info("polled queues at %s", self.path)
        try:
            await self._accept(listening)
        finally:
            self.path.unlink(missing_ok=True)
            listening.close()
            if self._change is not None:
                self._change.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- for the node's report, and its users

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about what is missing from `queues`."""
        now_ns, notes = self._now_ns(), [self.problem] if self.problem else []
        for peer in self._peers.values():
            if self._is_silent(peer, now_ns):
                silent_s = (now_ns - peer.seen_ns) // NS_PER_S
                notes.append(f"polled queues: {peer.poller} has not reported for {silent_s} s")
        most = sum(len(peer.states) + peer.left_out for peer in self._live(now_ns))
        if most > (listed := min(MOST_QUEUES, sum(len(peer.states) for peer in self._live(now_ns)))):
            notes.append(f"polled queues: {most - listed} more are not listed")
        return tuple(notes[:16])

    def queues(self) -> tuple[PolledQueue, ...]:
        """Return all reported queues, with what the kernel says of their threads since the last call."""
        now_ns = self._now_ns()
        return self._rows.all(list(self._live(now_ns)), now_ns)

    async def set_mode(self, request: NicModeRequest) -> NicModeAnswer:
        """Have a process change the mode of a queue's thread; return what is in force. Raises NodeError."""
        where = request.where
        peers = [peer for peer in self._live(self._now_ns()) if _polls(peer, request)]
        if not peers:
            of_process = "" if request.process is None else f" as process {request.process}"
            raise NodeError(f"no process on node {self._node} polls {where}{of_process}")
        if len(peers) > 1:
            pollers = ", ".join(str(peer.poller) for peer in peers[:8])
            raise NodeError(f"{where} is polled by {pollers}: name the process")
        (peer,) = peers
        outcome = await self._ordered(peer, request)
        if outcome.refusal:
            raise NodeError(f"{peer.poller} refuses: {outcome.refusal}")
        mine = {(state.device, state.index, state.queue): state for state in peer.states}
        if any((state.device, state.index, state.queue) not in mine for state in outcome.queues):
            raise NodeError(f"{peer.poller} answers with queues that it has not reported")
        mine |= {(state.device, state.index, state.queue): state for state in outcome.queues}
        peer.states = tuple(mine.values())
        self._note_change()
        return NicModeAnswer(queues=self._rows.of(peer, outcome.queues))

    async def _ordered(self, peer: Peer, request: NicModeRequest) -> Outcome:
        self._number += 1
        number = self._number
        answered: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        peer.orders[number] = answered
        try:
            async with local_timeout(_ORDER_S, f"{peer.poller}: another mode"):
                await _send(peer.connection, Order(number, request.device, request.queue, _ORDERED[request.mode]))
                return await answered
        except TimeoutError:
            raise NodeError(f"{peer.poller} does not answer: the mode may or may not have changed") from None
        except OSError:
            raise NodeError(f"{peer.poller} has ended") from None
        finally:
            peer.orders.pop(number, None)

    def _live(self, now_ns: int) -> Iterator[Peer]:
        return (peer for peer in self._peers.values() if not self._is_silent(peer, now_ns))

    @staticmethod
    def _is_silent(peer: Peer, now_ns: int) -> bool:
        return now_ns - peer.seen_ns > _SILENT_NS

    # ---- connections

    def _listen(self) -> socket.socket:
        if self._folder is not None and (problem := prepare(self._folder)) is not None:
            raise NodeError(problem)
        if self.path.parent.stat().st_mode & _WRITABLE_BY_OTHERS:
            raise NodeError(f"others may write to folder {self.path.parent}")
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            # Before it has a name, so that nobody else can connect in between.
            os.fchmod(listening.fileno(), 0o600)
            try:
                listening.bind(str(self.path))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or not self._is_left_over():
                    raise
                self.path.unlink()
                listening.bind(str(self.path))
            if self._others:  # whom the kernel names is checked at each connection
                self.path.chmod(0o666)
            listening.listen(_MOST_WAITING)
        except BaseException:
            listening.close()
            raise
        return listening

    def _is_left_over(self) -> bool:
        """Return whether the path is a socket of ours at which nobody listens."""
        status = self.path.lstat()
        if not stat.S_ISSOCK(status.st_mode) or status.st_uid not in {os.geteuid(), 0}:
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as asking:
            return asking.connect_ex(str(self.path)) == errno.ECONNREFUSED

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._warn(f"polled queues: {error.strerror}")
                await asyncio.sleep(1.0)  # as when this process is out of descriptors
                continue
            process, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if self._waiting[user] >= _MOST_WAITING_OF_USER or self._waiting.total() >= _MOST_WAITING:
                self._warn(f"polled queues: too many connections of user {user} wait")
                connection.close()
                continue
            self._waiting[user] += 1  # here, as many may be accepted before a task runs
            task = asyncio.create_task(self._serve(connection, process, user), name="polled queues")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, connection: socket.socket, process: int, user: int) -> None:
        """Serve a process until it ends."""
        with connection:
            try:
                peer = await self._meet(connection, process, user)
            finally:
                self._waiting[user] -= 1
                self._waiting += Counter()  # forgets users at 0
            if peer is None:
                return
            try:
                await self._follow(peer)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                self._warn(f"polled queues of {peer.poller}: {reason}")
            finally:
                del self._peers[connection.fileno()]
                for order in peer.orders.values():
                    if not order.done():
                        order.set_exception(ConnectionResetError())
                self._note_change()

    async def _meet(self, connection: socket.socket, process: int, user: int) -> Peer | None:
        """Return the process at the other end, None if it is refused."""
        try:
            async with local_timeout(_HELLO_S, "polled queues: a process's first message"):
                hello = await _receive(connection)
        except (OSError, ValueError, TimeoutError):
            return None
        problem = refusal_of_peer(connection, self._others)
        if problem is None and not isinstance(hello, Hello):
            problem = "it does not introduce itself"
        elif problem is None and isinstance(hello, Hello) and hello.version != VERSION:
            problem = f"version {hello.version} of the messages, not {VERSION}"
        elif problem is None and len(self._peers) >= self._section.most_processes:
            problem = f"{self._section.most_processes} processes are connected already"
        elif problem is None and user in self._others and self._of_user(user) >= self._section.most_of_user:
            problem = f"user {user} has {self._section.most_of_user} processes here already"
        namespace = namespace_of_process(process)
        is_own = namespace is not None and namespace == inode_of(self._namespace)
        welcome = Welcome(self._node, self._section.period_s, is_own, (problem or "")[:500])
        with suppress(OSError, TimeoutError):
            async with local_timeout(_HELLO_S, "polled queues: a process's welcome"):
                await _send(connection, welcome)
                if problem is None and isinstance(hello, Hello):
                    peer = Peer(connection, Poller(hello.program, process, user), namespace, self._now_ns())
                    self._peers[connection.fileno()] = peer
                    return peer
        if problem is not None:
            self._warn(f"polled queues: refused process {process} of user {user}: {problem}")
        return None

    def _of_user(self, user: int) -> int:
        return sum(peer.poller.user == user for peer in self._peers.values())

    async def _follow(self, peer: Peer) -> None:
        """Handle a process's messages until its connection or it has ended."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        process = _pidfd(peer)
        loop.add_reader(process, ended.set)
        gone = asyncio.ensure_future(ended.wait())
        message = asyncio.ensure_future(_receive(peer.connection))
        try:
            while True:
                await asyncio.wait((message, gone), return_when=asyncio.FIRST_COMPLETED)
                # A forked child may hold the connection of a process that has ended open.
                if not message.done() or (received := message.result()) is None:
                    return
                self._count(peer)
                await self._handle(peer, received)
                message = asyncio.ensure_future(_receive(peer.connection))
        finally:
            gone.cancel()
            message.cancel()
            await asyncio.gather(gone, message, return_exceptions=True)
            loop.remove_reader(process)
            os.close(process)

    def _count(self, peer: Peer) -> None:
        second = self._now_ns() // NS_PER_S
        peer.messages = peer.messages + 1 if second == peer.second else 1
        peer.second = second
        if peer.messages > _MOST_A_SECOND:
            raise ValueError(f"it sends more than {_MOST_A_SECOND} messages a second")

    async def _handle(self, peer: Peer, message: FromProcess) -> None:
        match message:
            case Report():
                await self._take(peer, message)
            case Outcome():
                order = peer.orders.get(message.number)
                if order is not None and not order.done():
                    order.set_result(message)
            case Claim():
                await _send(peer.connection, await self._answered(peer, message))
            case Hello():
                raise ValueError("it introduces itself twice")

    async def _take(self, peer: Peer, report: Report) -> None:
        """Take a report that does not contradict the kernel; raise ValueError for another one."""
        keys = {(state.device, state.index, state.queue, state.kind) for state in report.queues}
        if len(keys) < len(report.queues):
            raise ValueError("it reports a queue twice")
        before = {(state.device, state.index, state.queue, state.kind) for state in peer.states}
        now_ns = self._now_ns()
        if peer.examination is None or keys != before or now_ns - peer.examined_ns > _EXAMINE_NS:
            peer.examination = await asyncio.to_thread(examine, peer.poller.process, report.queues)
            peer.examined_ns, peer.namespace = now_ns, peer.examination.namespace
            if peer.examination.problem:
                peer.states = ()
                raise ValueError(peer.examination.problem)
        peer.states, peer.left_out, peer.seen_ns = report.queues, report.left_out, self._now_ns()
        if keys != before:
            self._note_change()

    async def _answered(self, peer: Peer, claim: Claim) -> Grant:
        """Answer a claim, once processes of an earlier manager's time had time to report."""
        wait_ns = self._grants_from_ns - self._now_ns()
        if self._rules and wait_ns > 0:
            await asyncio.sleep(wait_ns / NS_PER_S)
        examination = await asyncio.to_thread(_examine_device, peer.poller.process, claim)
        if examination.problem:
            return Grant(claim.number, refusal=examination.problem[:500])
        own = inode_of(self._namespace)
        if examination.namespace is None or examination.namespace != own:
            return Grant(claim.number, refusal=f"{claim.device} is not in node {self._node}'s network namespace")
        answer = granted(self._rules, self._held(peer), peer.poller, claim.device, claim.job)
        if isinstance(answer, str):
            LOGGER.info("%s gets no queue: %s", peer.poller, answer)
            return Grant(claim.number, refusal=answer[:500])
        peer.claims |= {(claim.device, queue): claim.job for queue in answer.queues}
        return self._told(peer, claim, answer)

    @staticmethod
    def _told(peer: Peer, claim: Claim, answer: Granted) -> Grant:
        queues = ", ".join(map(str, answer.queues))
        LOGGER.info("%s gets queue %s of %s as %s", peer.poller, queues, claim.device, answer.kind)
        return Grant(claim.number, answer.kind, answer.queues)

    def _held(self, asking: Peer) -> dict[tuple[str, int], Poller]:
        """Return who has which queue in the node's network namespace; silent processes may still poll."""
        own, held = inode_of(self._namespace), dict[tuple[str, int], Poller]()
        for peer in self._peers.values():
            if peer.namespace == own:
                polled = [(state.device, state.queue) for state in peer.states] if peer is not asking else []
                held |= dict.fromkeys((*polled, *peer.claims), peer.poller)
        return held

    def _note_change(self) -> None:
        """Call `on_change` soon, but only once for all changes of a period."""
        if self._change is None:
            self._change = asyncio.get_running_loop().call_later(self._section.period_s, self._tell_change)

    def _tell_change(self) -> None:
        self._change = None
        self._on_change()

    def _warn(self, line: str) -> None:
        """Log a line, at most once a minute."""
        now_ns = self._now_ns()
        self._said = {said: at_ns for said, at_ns in self._said.items() if now_ns - at_ns < _SAID_NS}
        if line not in self._said and len(self._said) < _MOST_SAID:
            self._said[line] = now_ns
            LOGGER.warning("%s", line)


def _polls(peer: Peer, request: NicModeRequest) -> bool:
    if request.process not in {None, peer.poller.process}:
        return False
    return any(state.device == request.device and request.queue in {None, state.queue} for state in peer.states)


def _examine_device(process: int, claim: Claim) -> Examination:
    """Return whether a device of a process's network namespace is the claimed one."""
    state = QueueState(device=claim.device, index=claim.index, queue=0, kind="dpdk", thread=0, mode="waiting")
    return examine(process, (state,))


def _pidfd(peer: Peer) -> int:
    """Return a descriptor that is readable once the process has ended; raise OSError if it has."""
    with suppress(OSError):  # older kernels
        (descriptor,) = struct.unpack("i", peer.connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
        return int(descriptor)
    return os.pidfd_open(peer.poller.process)


async def _receive(connection: socket.socket) -> FromProcess | None:
    """Return the next message, None at the end; raise OSError, ValueError for an invalid one."""
    packet = await asyncio.get_running_loop().sock_recv(connection, MOST_BYTES + 1)
    return decode_from_process(packet) if packet else None


async def _send(connection: socket.socket, message: FromManager) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, encode(message))


def _rules_of(section: NicSection) -> tuple[GrantRule, ...]:
    own = frozenset({os.geteuid(), 0})
    return tuple(
        GrantRule(
            grant.device,
            tuple(sorted(set(grant.queues))),
            grant.kind,
            frozenset(map(_user, grant.users)) or own,
            frozenset(grant.jobs),
        )
        for grant in section.grants
    )


def _user(name: str | int) -> int:
    if isinstance(name, int):
        return name
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise NodeError(f"nic.grants: users: there is no user {name}") from None
