"""Training in a process of its own, so that the interpreter's lock is not shared; restarted if it ends.

`give` sends without waiting; what the socket does not take at once is dropped and counted. A thread receives the
process's messages, prepares published weights, and only then replaces the previous ones.
"""

from __future__ import annotations

import errno
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Final

import msgspec

from controller.learning.agent.records import (
    Checkpoint,
    LearnerRecord,
    checkpoint_from_bytes,
    checkpoint_to_bytes,
    experience_to_bytes,
    experiences_to_bytes,
)
from controller.learning.agent.training.base import Prepare, Published, Status
from controller.learning.agent.training.channel import (
    ASK,
    ASK_AT_ONCE,
    EXPERIENCE,
    MOST_BYTES,
    TrainerMessage,
    hear,
    pair,
    tell,
)
from controller.learning.agent.weights import WeightSet
from controller.learning.errors import LearningError
from controller.learning.values import Experience
from dataplane.local.deadline import wait_for_exit
from dataplane.local.endings import how_ended

_MODULE: Final = "controller.learning.agent.training.worker"
_END_WITHIN_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.2
_LONGEST_WAIT_S: Final = 60.0
_SEND_BUFFER_BYTES: Final = 1 << 22
_TOGETHER: Final = 64
_TOGETHER_NS: Final = 100_000_000
_MESSAGE_BYTES: Final = 1 << 16


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    end: socket.socket


class ProcessTraining:
    """Trains in a process; if it ends, another one starts with the weights that were published last.

    The contents of its buffer and the state of its optimiser are lost then; decisions go on meanwhile.
    """

    def __init__(self, checkpoint: Checkpoint, prepare: Prepare, *, first_wait_s: float = 1.0) -> None:
        weights = checkpoint.weights()
        self._checkpoint = checkpoint
        self._prepare = prepare
        self._first_wait_s = first_wait_s
        self._published = Published(weights, prepare(weights))
        self._status = Status()
        self._dropped = self._restarts = self._questions = 0
        self._problem = ""
        self._sending = Lock()
        self._pending: list[bytes] = []
        self._pending_bytes = self._sent_ns = 0
        self._answers: dict[int, SimpleQueue[Checkpoint]] = {}
        self._closing = Event()
        self._lock = Lock()
        self._child = self._start(checkpoint)
        self._thread = Thread(target=self._listen, name="published weights", daemon=True)
        self._thread.start()

    @property
    def published(self) -> Published:
        """The newest weights that are ready."""
        return self._published

    @property
    def process_id(self) -> int:
        """ID of the training process."""
        return self._child.process.pid

    @property
    def status(self) -> Status:
        """Status of training at its last publication."""
        return msgspec.structs.replace(
            self._status,
            dropped=self._status.dropped + self._dropped,
            restarts=self._restarts,
            problem=self._problem,
        )

    def give(self, experience: Experience) -> None:
        """Send experiences, several at a time; those that would have to wait are dropped and counted.

        The last of them are sent with the next ones, or with a question.
        """
        data = experience_to_bytes(experience)
        with self._sending:
            if self._pending_bytes + len(data) > _MESSAGE_BYTES:
                self._send()
            self._pending.append(data)
            self._pending_bytes += len(data)
            now_ns = time.monotonic_ns()
            if len(self._pending) >= _TOGETHER or now_ns - self._sent_ns > _TOGETHER_NS:
                self._sent_ns = now_ns
                self._send()

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:
        """Return the published weights and the learner's state, after everything given was learned, or `at_once`.

        Raises LearningError, too, if the process that was asked ends before it answers.
        """
        answer: SimpleQueue[Checkpoint] = SimpleQueue()
        self._questions += 1
        number, asked = self._questions, self._child
        self._answers[number] = answer
        until_s = time.monotonic() + timeout_s
        try:
            self._send()
            # A blocking send has no time limit, so wait for room and then send at once.
            select.select([], [asked.end], [], timeout_s)
            asked.end.send((ASK_AT_ONCE if at_once else ASK) + number.to_bytes(8, "little"), socket.MSG_DONTWAIT)
            checkpoint = self._answered(answer, asked, until_s)
        except (OSError, ValueError, Empty):
            within = f" within {timeout_s:g} s" if time.monotonic() >= until_s else ""
            status = asked.process.poll()
            ended = "" if status is None else f"training process: {how_ended(status)}"
            because = f": {ended or self._problem}" if ended or self._problem else ""
            raise LearningError(f"training reported no state{within}{because}") from None
        finally:
            del self._answers[number]
        if checkpoint.learner is None:
            raise LearningError("training reported a state without a learner")
        return checkpoint.weights(), checkpoint.learner

    def _answered(self, answer: SimpleQueue[Checkpoint], asked: _Child, until_s: float) -> Checkpoint:
        """Return an answer; raise Empty on a timeout, or if the process that was asked has ended."""
        while True:
            try:
                return answer.get(timeout=min(_LOOK_EVERY_S, max(until_s - time.monotonic(), 0)))
            except Empty:
                if time.monotonic() >= until_s or asked is not self._child or asked.process.poll() is not None:
                    raise

    def close(self) -> None:
        """End the process, by force after a second."""
        with self._lock:
            self._closing.set()
            child = self._child
        _end(child)
        self._thread.join(_END_WITHIN_S)

    def _send(self) -> None:
        """Send pending experiences together: each message wakes the other side, which would delay a decision."""
        if not self._pending:
            return
        message = EXPERIENCE + experiences_to_bytes(self._pending)
        try:
            if len(message) > MOST_BYTES:
                raise OSError(errno.EMSGSIZE, "longer than a message may be")
            self._child.end.send(message, socket.MSG_DONTWAIT)
        except OSError:
            # Its queue is full, or it ended: either way these experiences are lost.
            self._dropped += len(self._pending)
        self._pending, self._pending_bytes = [], 0

    def _start(self, checkpoint: Checkpoint) -> _Child:
        ours, theirs = pair()
        # Our copy of the child's end must close, or its death would not end the connection.
        with theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            process = subprocess.Popen(  # noqa: S603 - our own interpreter
                [sys.executable, "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        tell(ours, TrainerMessage("ready"), checkpoint_to_bytes(checkpoint))
        return _Child(process, ours)

    def _listen(self) -> None:
        """Receive the process's messages; if it ends, start another, later each time until one publishes."""
        wait_s = self._first_wait_s
        while not self._closing.is_set():
            version = self._published.weights.version
            self._hear_all(self._child)
            if self._closing.is_set():
                return
            self._problem = f"training process: {how_ended(_end(self._child))}"
            if self._published.weights.version > version:
                wait_s = self._first_wait_s
            if self._closing.wait(wait_s):
                return
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            self._start_again()

    def _start_again(self) -> None:
        weights = self._published.weights
        start = msgspec.structs.replace(
            self._checkpoint, version=weights.version, published=weights.to_bytes(), learner=None
        )
        # close() must not miss a process that starts at the same time.
        with self._lock:
            if not self._closing.is_set():
                self._child = self._start(start)
                self._restarts += 1

    def _hear_all(self, child: _Child) -> None:
        while True:
            try:
                heard = hear(child.end)
            except (OSError, msgspec.DecodeError):
                return
            if heard is None:
                return
            self._take(*heard)

    def _take(self, message: TrainerMessage, data: bytes) -> None:
        self._status = message.status
        if message.kind == "weights":
            weights = WeightSet.from_buffer(self._checkpoint.shape, data, message.version)
            self._published = Published(weights, self._prepare(weights))
        elif message.kind == "state":
            answer = self._answers.get(message.question)
            if answer is not None:
                answer.put(checkpoint_from_bytes(data, "the state from training"))


def _end(child: _Child) -> int:
    """Close a process's socket, which ends it; by force after a second. Return its status."""
    with suppress(OSError):  # It may have ended first.
        child.end.shutdown(socket.SHUT_RDWR)
    if not wait_for_exit(child.process, _END_WITHIN_S, "the end of the training process"):
        child.process.kill()
    status = child.process.wait()
    child.end.close()
    return status
