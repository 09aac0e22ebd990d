"""gRPC options of all our servers and clients; everything else keeps gRPC's default.

https://grpc.github.io/grpc/core/group__grpc__arg__keys.html lists them; gRPC's names say little, so each is explained
where it is set.
"""

from __future__ import annotations

from typing import Final

from dataplane.rpc.limits import Limits

KEEPALIVE_MS: Final = 5000
"""Silence after which either side probes whether the other is alive; an answer may take as long."""

CONNECT_MS: Final = 5000
"""Maximum time for a connection attempt, TCP's and HTTP/2's handshakes together, before a new one is made."""

ANSWER_BYTES: Final = 256 << 20
"""Largest message that our clients receive or send."""

PROBES_MS: Final = 100
"""Minimum interval of a client's probes; gRPC disconnects a client that probes faster, after the third time."""

_LEAST_RECONNECT_MS: Final = 100

Options = list[tuple[str, int]]


def server_options(limits: Limits, silent_ms: int = KEEPALIVE_MS, answer_ms: int | None = None) -> Options:
    """Return the options of a server.

    A client that is silent for `silent_ms` is probed, and disconnected unless it answers within `answer_ms`, by default
    as long.
    """
    return [
        ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_send_message_length", limits.answer_bytes),
        ("grpc.http2.bdp_probe", 0),  # else a call that waits to be read may already have sent megabytes
        ("grpc.max_concurrent_streams", limits.calls_per_connection),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_connection_idle_ms", limits.idle_ns // 1_000_000),
        ("grpc.server_handshake_timeout_ms", limits.first_message_ns // 1_000_000),  # TLS's and HTTP/2's handshakes
        ("grpc.http2.min_ping_interval_without_data_ms", PROBES_MS),
        ("grpc.keepalive_permit_without_calls", 1),  # clients may probe, too, without being disconnected
        *_keepalive(silent_ms, silent_ms if answer_ms is None else answer_ms),
    ]


def client_options(longest_wait_ns: int) -> Options:
    """Return the options of a client: bounded messages, no proxy, reconnecting soon and without limit.

    A server that hangs, or whose machine or network died silently, makes calls end, streams included.
    """
    return [
        *foreign_options(),
        ("grpc.initial_reconnect_backoff_ms", _LEAST_RECONNECT_MS),
        ("grpc.min_reconnect_backoff_ms", CONNECT_MS),  # no wait, despite its name: gRPC's MIN_CONNECT_TIMEOUT
        ("grpc.max_reconnect_backoff_ms", max(longest_wait_ns // 1_000_000, _LEAST_RECONNECT_MS)),
        *_keepalive(KEEPALIVE_MS, KEEPALIVE_MS),
    ]


def foreign_options(probe_ms: int | None = None) -> Options:
    """Return the options of a client of servers that may not be ours: bounded messages, no proxy.

    Other servers disconnect clients that probe often: they are probed after `probe_ms` without a message, None: never.
    """
    options = [
        ("grpc.max_receive_message_length", ANSWER_BYTES),
        ("grpc.max_send_message_length", ANSWER_BYTES),
        ("grpc.enable_http_proxy", 0),
    ]
    if probe_ms is not None:
        options += [("grpc.keepalive_time_ms", probe_ms), ("grpc.keepalive_timeout_ms", KEEPALIVE_MS)]
    return options


def _keepalive(silent_ms: int, answer_ms: int) -> Options:
    return [
        ("grpc.keepalive_time_ms", silent_ms),
        ("grpc.keepalive_timeout_ms", answer_ms),
        ("grpc.http2.ping_timeout_ms", answer_ms),  # else a minute, whatever the keepalive setting
        ("grpc.http2.max_pings_without_data", 0),
    ]
