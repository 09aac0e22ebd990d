"""A worker: serves clients that run jobs on it, one at a time, and receives results from other workers."""

from __future__ import annotations

import socket
import threading
import time
from typing import Final

from controller.acceleration.running.channels import Channel, Limits, Message
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.jobs import MOST_SAMPLE_BYTES, Job
from controller.acceleration.running.sessions import Session

_ACCEPT_S: Final = 0.2


class Worker:
    """Serves sessions and receives results; `serve` returns once `stop` is set or the time is over."""

    def __init__(self, secret: bytes, limits: Limits, threads: int = 1) -> None:
        self.secret, self.limits, self.threads = secret, limits, threads
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._session = threading.Lock()

    def serve(self, listening: socket.socket, stop: threading.Event, for_s: float) -> None:
        """Serve clients that know the secret."""
        ends_s = time.monotonic() + for_s
        listening.settimeout(_ACCEPT_S)
        places = threading.BoundedSemaphore(self.limits.connections)
        while not stop.is_set() and time.monotonic() < ends_s:
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            if not places.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._served, args=(connection, places), daemon=True).start()
        for job in list(self._jobs.values()):
            job.stop("the worker is stopping")

    def _served(self, connection: socket.socket, places: threading.BoundedSemaphore) -> None:
        try:
            with connection:
                channel = Channel(connection, self.secret, self.limits, is_listener=True)
                message, _ = channel.receive(self.limits.silence_s, 0)
                if message.get("type") == "part-of":
                    self._take(channel, message)
                elif message.get("type") == "sample":
                    self._sampled(channel)
                elif message.get("type") == "open":
                    self._converse(channel, message)
        except (OSError, RunError):
            return  # the other end is gone, or does not know the secret
        finally:
            places.release()

    def _take(self, channel: Channel, message: Message) -> None:
        """Receive another worker's result, if one is due and there is room for it."""
        try:
            job = self._job(str(message.get("job")))
            name = str(message.get("from"))
            job.mailbox.expect(name)
            channel.send({"type": "ready"})
            _, table = channel.receive(self.limits.silence_s, job.mailbox.room_bytes)
            if table is None:
                raise RunError("a result without a table")
            job.mailbox.put(name, table)
        except RunError as error:
            channel.send({"type": "refused", "problem": str(error)})
            return
        channel.send({"type": "taken"})

    def _sampled(self, channel: Channel) -> None:
        """Receive a table only to time the processor."""
        begun_s = time.process_time()
        channel.send({"type": "ready"})
        channel.receive(self.limits.silence_s, MOST_SAMPLE_BYTES)
        channel.send({"type": "taken", "cpu_s": time.process_time() - begun_s})

    def _job(self, name: str) -> Job:
        with self._lock:
            if name not in self._jobs:
                raise RunError("no such job")
            return self._jobs[name]

    def _converse(self, channel: Channel, opening: Message) -> None:
        """Serve one session; only one has the worker at a time."""
        if not self._session.acquire(blocking=False):
            channel.send({"type": "refused", "problem": "it is busy with another client"})
            return
        try:
            session = Session(self, channel)
            try:
                session.converse(opening)
            finally:
                session.close()
        finally:
            self._session.release()
        # Waiters may open the next session at once.
        channel.send({"type": "done"})

    def add(self, job: Job) -> None:
        """Accept results for a job from now on."""
        with self._lock:
            self._jobs[job.order.job] = job

    def drop(self, job: Job) -> None:
        """Stop accepting results for a job."""
        with self._lock:
            self._jobs.pop(job.order.job, None)
