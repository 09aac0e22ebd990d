"""simple_switch_grpc with one of our small programs, in a network namespace of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import finsy
import grpc
from finsy.proto import p4r, p4r_grpc

from dataplane.switch.bmv2 import thrift_words
from tests.dataplane.switch.interpreter.harness import PROGRAMS, Sent
from tests.p4.veth import Namespace, receive_all

DEVICE, ELECTION = 1, p4r.Uint128(low=1)
TIMEOUT_S, SETTLE_S = 3.0, 0.004

_NUMBERS = itertools.count()


class Bmv2Process:
    """Runs while the `with` block lasts; every port is a veth pair."""

    def __init__(self, name: str, ports: Sequence[int]) -> None:
        self._json = PROGRAMS / f"{name}.json"
        self._schema = finsy.P4Schema(PROGRAMS / f"{name}.p4info.txtpb", self._json)
        self._ports = tuple(ports)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()

    def __enter__(self) -> Bmv2Process:
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="millrace-bmv2-"))
            namespace = stack.enter_context(Namespace(f"millrace-{os.getpid()}-{next(_NUMBERS)}", self._ports))
            self._sockets = namespace.open_sockets()
            for packet_socket in self._sockets.values():
                stack.enter_context(packet_socket)
            address = f"unix:{Path(directory) / 'grpc'}"
            self._start(namespace.name, address, stack)
            channel = stack.enter_context(grpc.insecure_channel(address))
            stack.callback(self._requests.put, None)
            grpc.channel_ready_future(channel).result(timeout=20)
            self._stub = p4r_grpc.P4RuntimeStub(channel)
            self._load()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, namespace: str, address: str, stack: contextlib.ExitStack) -> None:
        ports = [word for port in self._ports for word in ("-i", f"{port}@s{port}")]
        switch = ["simple_switch_grpc", *thrift_words(), "--no-p4", "--device-id", str(DEVICE), *ports, "--"]
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *switch, "--grpc-server-addr", address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        stack.callback(process.wait, timeout=10)
        stack.callback(process.terminate)

    def _load(self) -> None:
        arbitration = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=ELECTION)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        self._stream: Iterator[p4r.StreamMessageResponse] = iter(
            self._stub.StreamChannel(iter(self._requests.get, None))
        )  # kept: bmv2 takes writes only while the stream is open
        next(self._stream)
        config = p4r.ForwardingPipelineConfig(p4info=self._schema.p4info, p4_device_config=self._json.read_bytes())
        request = p4r.SetForwardingPipelineConfigRequest(device_id=DEVICE, election_id=ELECTION, config=config)
        request.action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        self._stub.SetForwardingPipelineConfig(request)

    def insert(self, entity: finsy.P4CloneSessionEntry | finsy.P4MulticastGroupEntry) -> None:
        update = p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(self._schema))
        self._stub.Write(p4r.WriteRequest(device_id=DEVICE, election_id=ELECTION, updates=[update]))

    def send(self, port: int, data: bytes, *, expect: int) -> Sent:
        """Return the output by port: wait for `expect` frames, and a little longer for more."""
        self._sockets[port].send(data)
        sent: Sent = []
        give_up = time.monotonic() + TIMEOUT_S
        while len(sent) < expect and time.monotonic() < give_up:
            sent += self._take()
            time.sleep(0.0005)
        time.sleep(SETTLE_S)
        return sorted(sent + self._take())

    def _take(self) -> Sent:
        return [(port, data) for port, own in self._sockets.items() for data in receive_all(own)]
