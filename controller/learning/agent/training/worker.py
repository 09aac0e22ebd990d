"""The training process: `python -m controller.learning.agent.training.worker DESCRIPTOR`.

It inherits one end of a socket, reads a checkpoint to resume from, then experience, and sends weights, states and its
status. It ends when the other end does.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from threading import Thread

import msgspec
import torch

from controller.learning.agent.learner import Learner
from controller.learning.agent.records import (
    Checkpoint,
    checkpoint_from_bytes,
    checkpoint_to_bytes,
    experiences_from_bytes,
)
from controller.learning.agent.resuming import learner_of, learner_record
from controller.learning.agent.training.base import Status
from controller.learning.agent.training.channel import (
    ASK,
    ASK_AT_ONCE,
    EXPERIENCE,
    MOST_BYTES,
    TrainerMessage,
    hear,
    tell,
)
from controller.learning.agent.training.inline import status_of
from controller.learning.agent.training.loop import Backlog, train
from controller.learning.agent.weights import WeightSet
from controller.learning.errors import LearningError


class Worker:
    """A learner behind a socket: one thread receives, the main one trains."""

    def __init__(self, end: socket.socket, checkpoint: Checkpoint, learner: Learner) -> None:
        self._end = end
        self._checkpoint = checkpoint
        self._learner = learner
        self._backlog = Backlog(learner.settings.training.backlog)

    def run(self) -> None:
        """Train until the other end closes."""
        Thread(target=self._receive, name="receiving", daemon=True).start()
        tell(self._end, TrainerMessage("ready", status=self._status()))
        train(self._learner, self._backlog, self._publish)

    def _receive(self) -> None:
        while message := self._end.recv(MOST_BYTES):
            if message[:1] == EXPERIENCE:
                for experience in experiences_from_bytes(message[1:]):
                    self._backlog.add(experience)
            elif message[:1] in {ASK, ASK_AT_ONCE}:
                self._answer(int.from_bytes(message[1:], "little"), at_once=message[:1] == ASK_AT_ONCE)
        # The decider is gone: pending experience is useless.
        os._exit(0)

    def _answer(self, question: int, *, at_once: bool) -> None:
        self._backlog.ask(lambda _: self._tell_state(question), at_once=at_once)

    def _tell_state(self, question: int) -> None:
        learner = self._learner
        checkpoint = msgspec.structs.replace(
            self._checkpoint,
            version=learner.published.version,
            published=learner.published.to_bytes(),
            learner=learner_record(learner),
        )
        tell(
            self._end,
            TrainerMessage("state", checkpoint.version, question, self._status()),
            checkpoint_to_bytes(checkpoint),
        )

    def _publish(self, weights: WeightSet) -> None:
        tell(self._end, TrainerMessage("weights", weights.version, status=self._status()), weights.to_bytes())

    def _status(self) -> Status:
        return status_of(self._learner, dropped=self._backlog.dropped)


def main(descriptor: int) -> int:
    """Train for the socket with this descriptor; return the exit status."""
    # An interrupt at the terminal is for the decider, which closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as end:
        try:
            heard = hear(end)
            if heard is None:
                return 0
            checkpoint = checkpoint_from_bytes(heard[1], "the initial state")
            training = checkpoint.settings.training
            os.nice(training.nice)
            torch.set_num_threads(training.threads)
            Worker(end, checkpoint, learner_of(checkpoint)).run()
        except BrokenPipeError:
            return 0
        except (RuntimeError, LearningError) as error:
            sys.stderr.write(f"training: {str(error).splitlines()[0]}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
