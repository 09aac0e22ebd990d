"""A worker's talk with the job service, over as many connections as it takes."""

from __future__ import annotations

import logging
import queue
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import grpc

from dataplane.allreduce.jobs.codec import encode
from dataplane.allreduce.jobs.messages import ATTEND, Heartbeat, Upward
from dataplane.clock import NS_PER_S
from dataplane.errors import AllReduceError
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.backoff import Backoff
from dataplane.rpc.call_errors import PERMANENT, reason_of
from dataplane.rpc.channels import open_channel
from dataplane.rpc.options import client_options

LOGGER: Final = logging.getLogger("millrace.allreduce")

_FIRST_HEARTBEAT_S: Final = 0.5
"""Heartbeat interval before the service has set one."""
_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 2.0


class ServiceConnection:
    """Sends a worker's messages, and heartbeats between them; one thread runs it, any may send.

    Of several addresses, separated by commas, the one that answers is used: controllers of a pair have one each. Each
    connection begins with what `greet` returns, and `take` gets what the service sends. `idle` is called whenever
    there has been nothing to send for a while; `is_over` waits up to some seconds, and returns whether all is over.
    """

    def __init__(
        self,
        address: str,
        job: str,
        tls: TlsSettings | None,
        *,
        greet: Callable[[], Sequence[Upward]],
        take: Callable[[bytes], None],
        idle: Callable[[], None],
        is_over: Callable[[float], bool],
    ) -> None:
        self._address, self._job = address, job
        self._greet, self._take, self._idle, self._is_over = greet, take, idle, is_over
        self._outbox: queue.SimpleQueue[Upward] = queue.SimpleQueue()
        self._call: Any = None
        options = client_options(int(_LONGEST_RETRY_S * NS_PER_S))
        self._addresses = address.split(",")
        self._channels = [open_channel(each, tls, options) for each in self._addresses]
        self._troubles = dict[str, str]()
        self._is_stopped = False
        self.heartbeat_s = _FIRST_HEARTBEAT_S
        self.problem = "it has not been asked yet"
        """Reason why the service is not connected; empty if it is."""

    def run(self) -> None:
        """Talk until all is over; raise AllReduceError if the service refuses for good."""
        backoff = Backoff(int(_RETRY_S * NS_PER_S), int(_LONGEST_RETRY_S * NS_PER_S), random.Random())
        turn = 0
        while not self._is_over(0):
            was_heard = self._run_connection(turn)
            if was_heard:
                backoff.reset()
            else:
                turn = (turn + 1) % len(self._addresses)
            self._idle()
            if was_heard or turn == 0:
                self._is_over(backoff.next_s())

    def send(self, message: Upward) -> None:
        """Send a message over the present connection; if that ends before, the message is lost."""
        self._outbox.put(message)

    def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True

    def close(self) -> None:
        """End the present connection, the last one."""
        call = self._call
        if call is not None:
            call.cancel()
        for channel in self._channels:
            channel.close()

    def _run_connection(self, turn: int) -> bool:
        """Talk over one connection until it ends; return whether the service sent anything."""
        address = self._addresses[turn]
        outbox = self._outbox = queue.SimpleQueue()
        self._call = self._channels[turn].stream_stream(ATTEND, None, None)(self._outgoing(outbox))
        was_heard = False
        try:
            for message in self._call:
                if not was_heard and self._troubles.pop(address, None) is not None:
                    LOGGER.info("job %s: the job service at %s answers again", self._job, address)
                was_heard, self.problem = True, ""
                self._take(message)
            self._note(address, "it ended the connection")
        except grpc.RpcError as error:
            call = cast(grpc.Call, error)
            self._note(address, reason_of(call))
            if call.code() in PERMANENT:
                raise AllReduceError(f"job service at {address}: {reason_of(call)}") from error
        return was_heard

    def _note(self, address: str, trouble: str) -> None:
        if trouble != self._troubles.get(address) and not self._is_over(0):
            LOGGER.warning("job %s: the job service at %s: %s", self._job, address, trouble)
        self._troubles[address] = self.problem = trouble

    def _outgoing(self, outbox: queue.SimpleQueue[Upward]) -> Iterator[bytes]:
        """Yield pending messages, and heartbeats often enough to stay alive."""
        yield from map(encode, self._greet())
        while self._outbox is outbox and not self._is_stopped:
            try:
                message: Upward = outbox.get(timeout=self.heartbeat_s)
            except queue.Empty:
                self._idle()
                message = Heartbeat()
            yield encode(message)
