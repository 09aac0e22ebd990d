"""Network throughput: bytes pulled from another host over TCP, by one connection or several at a time.

The environment names the server, which belongs to the centre and not to the kernel:
- MILLRACE_PULL_FROM=HOST:PORT and MILLRACE_PULL_SECRET_FILE: a server that runs elsewhere (`millrace probe kernels
  serve`), as between two hosts;
- MILLRACE_PULL_NAMESPACE and MILLRACE_PULL_ADDRESS: the kernel starts a server of its own in a network namespace, at an
  address there, as between two hosts of a fabric on this machine (root);
- nothing: a server of its own at 127.0.0.1. That measures only this host, and `figures` say so.
"""

from __future__ import annotations

import itertools
import math
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import Array, Maker, Sizes, Value, fold
from controller.probing.kernels.transfers import pull
from dataplane.errors import FabricError
from dataplane.given import MIB, read_given_text

_CONNECT_S: Final = 5.0
_SILENCE_S: Final = 10.0
_PULL_S: Final = 300.0
_MOST_STREAMS: Final = 64
_MOST_BYTES: Final = 64 << 30


@dataclass(frozen=True, slots=True)
class Source:
    """Address and secret of a server."""

    address: tuple[str, int]
    secret: bytes
    is_loopback: bool = False


class NetworkPull:
    """Pulls `nbytes`, evenly divided over the connections; its output are checksums of all blocks' ends."""

    def __init__(self, sizes: Sizes, seed: int, environment: Mapping[str, str] = os.environ) -> None:
        self._streams = sizes["streams"]
        if self._streams > _MOST_STREAMS or sizes["nbytes"] > _MOST_BYTES:
            raise ProbeKernelError(
                f"network-pull: {sizes['nbytes']} bytes over {self._streams} connections;"
                f" at most {_MOST_BYTES} over {_MOST_STREAMS}"
            )
        bounds = [sizes["nbytes"] * stream // self._streams for stream in range(self._streams + 1)]
        self._shares = [end - begin for begin, end in itertools.pairwise(bounds)]
        self._seed = seed % (1 << 63)
        self._content = pull.content_of(self._seed)
        self._inputs: tuple[Value, ...] = ()
        self._number = 0
        self._figures: dict[str, float] = {}
        self.server, self._source = _source(environment)
        self._pool = ThreadPoolExecutor(self._streams)

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Connect, pull and close, all connections at a time; inputs change the requested stamps."""
        if inputs is not self._inputs:
            self._inputs, self._number = inputs, int((fold(inputs) - 1.0) * (1 << 30))
        begun_s = time.perf_counter()
        parts = list(self._pool.map(self._pulled, self._shares))
        took_s = time.perf_counter() - begun_s
        self._figures = {"bytes_per_s": sum(self._shares) / took_s, "loopback": float(self._source.is_loopback)}
        return np.concatenate(parts)

    def accuracy(self, output: Array) -> float:
        """Return the fraction of blocks that differ from the request."""
        true = np.concatenate([self._checksums(share) for share in self._shares])
        return math.inf if output.shape != true.shape else float(np.mean(output != true))

    def figures(self) -> dict[str, float]:
        """Return bytes per second of the last run, and whether they have left this host at all."""
        return self._figures

    def close(self) -> None:
        """End the server that was started."""
        self._pool.shutdown()
        if self.server is not None:
            end(self.server)

    def _pulled(self, nbytes: int) -> Array:
        ends_s = time.monotonic() + _PULL_S
        where = "{}:{}".format(*self._source.address)
        checksums = []
        try:
            with socket.create_connection(self._source.address, _CONNECT_S) as connection:
                connection.settimeout(_SILENCE_S)
                nonce = pull.exactly(connection, pull.NONCE_BYTES, ends_s)
                connection.sendall(pull.answer(self._source.secret, nonce, nbytes, self._seed, self._number))
                view = memoryview(bytearray(pull.BLOCK))
                for _, size in pull.blocks_of(nbytes):
                    pull.receive_into(connection, view[:size], ends_s)
                    checksums.append(pull.ends_of(view[:size]))
        except OSError as error:
            raise ProbeKernelError(f"network-pull: {where}: {error.strerror or error}") from None
        return np.array(checksums, dtype=np.float64)

    def _checksums(self, nbytes: int) -> Array:
        checksums = []
        for block, size in pull.blocks_of(nbytes):
            content = (pull.stamp_of(block, self._number) + self._content[8:])[:size]
            checksums.append(pull.ends_of(memoryview(content)))
        return np.array(checksums, dtype=np.float64)


def _source(environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes] | None, Source]:
    """Return the source to pull from, and the server started for it, if any."""
    elsewhere = environment.get("MILLRACE_PULL_FROM")
    if elsewhere:
        return None, Source(address_of(elsewhere), _secret_in(environment.get("MILLRACE_PULL_SECRET_FILE")))
    namespace, address = environment.get("MILLRACE_PULL_NAMESPACE"), environment.get("MILLRACE_PULL_ADDRESS")
    if namespace is not None and address is None:
        raise ProbeKernelError("network-pull: MILLRACE_PULL_NAMESPACE without MILLRACE_PULL_ADDRESS, an address in it")
    secret = secrets.token_bytes(pull.SECRET_BYTES)
    host = address or "127.0.0.1"
    server, port = start_server(host, secret, namespace)
    return server, Source((host, port), secret, is_loopback=namespace is None)


def start_server(host: str, secret: bytes, namespace: str | None = None) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server process in a network namespace, or in this one; return it and its port."""
    try:
        if namespace is None:
            waiting = listening(host)
        else:
            from dataplane.fabric.kernel import namespaces  # noqa: PLC0415 - heavy, and needed for fabrics alone

            waiting = namespaces.call(namespace, lambda: listening(host))
    except (OSError, FabricError) as error:
        where = host if namespace is None else f"{host} in {namespace}"
        raise ProbeKernelError(
            f"network-pull: no server at {where}: {getattr(error, 'strerror', None) or error}"
        ) from None
    with waiting:
        number = waiting.fileno()
        # By its file: it needs only Python, wherever this is installed.
        argv = [sys.executable, "-I", str(pull.__file__), str(number), str(2 * _PULL_S)]
        server = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=(number,), start_new_session=True)  # noqa: S603 - our own
        if server.stdin is not None:
            server.stdin.write(secret)
            server.stdin.flush()
        return server, waiting.getsockname()[1]


def end(server: subprocess.Popen[bytes]) -> None:
    """End a server: it exits when its standard input ends, and is killed if it does not."""
    if server.stdin is not None:
        server.stdin.close()
    try:
        server.wait(2.0)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def address_of(text: str, least_port: int = 1) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise ProbeKernelError for anything else."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and least_port <= int(port) < 1 << 16):
        raise ProbeKernelError(f"network-pull: {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def listening(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at an address; raise OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_MOST_STREAMS)


def _secret_in(file: str | None) -> bytes:
    if not file:
        raise ProbeKernelError("network-pull: MILLRACE_PULL_FROM without MILLRACE_PULL_SECRET_FILE")
    try:
        secret = bytes.fromhex(read_given_text(file, MIB, encoding="ascii"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not hexadecimal text"
        raise ProbeKernelError(f"network-pull: secret file {file}: {reason}") from None
    if len(secret) != pull.SECRET_BYTES:
        raise ProbeKernelError(f"network-pull: secret file {file}: {len(secret)} bytes, not {pull.SECRET_BYTES}")
    return secret


network_pull: Final = Maker(
    NetworkPull, lambda s: (pull.BLOCK + 1024) * 2 * s.get("streams", 1) + 2 * pull.BLOCK, optional=(("streams", 1),)
)
