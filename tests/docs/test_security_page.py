"""The security page lists every listening socket of the code, with the addresses and limits of the settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collectors.exporters.settings import OtlpSettings, SflowSettings
from collectors.settings import FEED_ADDRESS, CollectorSettings
from controller.acceleration.running.channels import Limits as WorkerLimits
from controller.apiserver.settings import ApiLimits
from controller.cluster.alto.settings import ADDRESS as ALTO_ADDRESS
from controller.cluster.alto.settings import AltoSettings
from controller.memory.frame_server import FrameLimits
from controller.memory.host.settings import HostSettings, TierKind, TierSettings
from controller.network.aggregation.service.settings import JobSettings
from controller.network.paths.settings import ADDRESS as PATHS_ADDRESS
from controller.probing.kernels.transfers.pull import Limits as TransferLimits
from controller.scheduling.extender.settings import ADDRESS as EXTENDER_ADDRESS
from controller.scheduling.extender.settings import ExtenderLimits
from dataplane.allreduce.jobs.messages import ADDRESS as JOBS_ADDRESS
from dataplane.metrics_server import MetricsLimits
from dataplane.rpc.limits import Limits
from dataplane.rpc.own_folder import default_address
from dataplane.store.producer_core import Quotas
from dataplane.switch.drop_in.names import DEFAULT_GRPC_ADDRESS
from dataplane.switch.p4runtime.server import LIMITS
from dataplane.switch.runtime_api.server import ApiLimits as RuntimeApiLimits
from dataplane.topology.schema import REPORT_UDP_PORT
from dataplane.wire.store import UDP_PORT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "security.md").read_text(encoding="utf-8")
PACKAGES = "dataplane", "collectors", "controller"
LISTENS = re.compile(
    r"(opened|sock|probe|found|listening|server|socket|_socket|_listening)\.bind\((?!ETHTOOL|library)|\.add_(in)?secure_port\("
    r"|\bsocket\.create_server\(|\basyncio\.start_(unix_)?server\(|\.create_datagram_endpoint\("
)
MEMORY = TierSettings(name="t", kind=TierKind.DRAM, capacity_bytes=1 << 20)
ROWS = {
    "collectors/stamp/reflector.py": "STAMP reflector (UDP)",
    "collectors/ingest/report_sources.py": "collector, reports (UDP)",
    "controller/balance/levers/running_program.py": "programs of balanced units (UNIX)",
    "controller/workloads/nodes/nic/server.py": "node's manager, polled queues (UNIX)",
    "controller/common/http_server.py": "API server (HTTP)",
    "controller/acceleration/running/channels.py": "worker of `millrace accel`",
    "controller/probing/kernels/transfers/network.py": "probes: warm server (UNIX), transfers (TCP)",
    "controller/probing/running/warm.py": "probes: warm server (UNIX), transfers (TCP)",
    "controller/apps/up/control.py": "`millrace up`, control (UNIX)",
    "controller/memory/connections.py": "memory: hosts' blocks, pool (UNIX, TCP)",
    "dataplane/allreduce/transports.py": "worker of an all-reduce (UDP)",
    "dataplane/fabric/agent.py": "fabric in the kernel, traffic of its hosts (UDP)",
    "dataplane/fabric/live/kernel.py": "fabric in the kernel, reports (UDP)",
    "dataplane/metrics_server.py": "metrics (HTTP)",
    "dataplane/rpc/server.py": "collector, feed (gRPC)",
    "dataplane/store/sockets.py": "content producer (UDP)",
    "dataplane/switch/drop_in/sp.py": "switch, packets as messages (nanomsg, `--packet-in`)",
    "dataplane/switch/runtime_api/server.py": "switch, runtime API (Thrift)",
}
NOT_FOR_OTHERS = {
    "controller/network/telemetry_probing/sender.py": "sends, and is never read",
    "controller/apps/cli/doctor/machine.py": "whether a port is free",
    "controller/apps/up/ports.py": "whether a port is free; marks it by a name at which nobody listens",
    "controller/apps/up/state.py": "whether a port is free",
    "dataplane/nic/devices/link_events.py": "the kernel's messages",
    "dataplane/nic/ports/packet_socket.py": "frames of a device",
    "dataplane/nic/ports/segment_sender.py": "sends frames of a device, and takes none",
    "dataplane/nic/ports/socket_port.py": "the near end of a connection",
    "dataplane/rpc/addresses.py": "whether an address is free",
    "dataplane/switch/bmv2.py": "whether a port is free",
    "dataplane/switch/drop_in/capture.py": "frames of a device",
}


def test_whatever_listens_has_its_row() -> None:
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    listeners = {str(path.relative_to(ROOT)) for path in files if LISTENS.search(path.read_text(encoding="utf-8"))}
    assert listeners == ROWS.keys() | NOT_FOR_OTHERS.keys()
    assert [row for row in ROWS.values() if f"\n| {row} |" not in PAGE] == []


def row_of(begins: str, index: int = 0) -> str:
    """Return the row of a socket: in the table of addresses, or, with 1, in that of limits."""
    return [line for line in PAGE.splitlines() if line.startswith(f"| {begins}")][index]


@pytest.mark.parametrize(
    ("begins", "address"),
    [
        ("collector, reports", f"0.0.0.0:{REPORT_UDP_PORT}"),
        ("collector, sFlow", f"{SflowSettings(()).address}:{SflowSettings(()).udp_port}"),
        ("collector, OTLP", OtlpSettings(()).address),
        ("collector, feed", FEED_ADDRESS),
        ("path server", PATHS_ADDRESS),
        ("job service", JOBS_ADDRESS),
        ("switch, P4Runtime", DEFAULT_GRPC_ADDRESS),
        ("API server", default_address("api")),
        ("ALTO", ALTO_ADDRESS),
        ("kube-scheduler", EXTENDER_ADDRESS),
        ("content producer", f"127.0.0.1:{UDP_PORT}"),
        ("memory: hosts", HostSettings(name="h", tiers=(MEMORY,), cores=0).address),
        ("memory: hosts", default_address("memory-pool")),
        ("worker of `millrace accel`", default_address("accel-worker")),
    ],
)
def test_a_row_has_the_address_that_is_the_default(begins: str, address: str) -> None:
    shown = re.sub(r"^unix:.*/", "unix:RUN/", address)
    assert shown in row_of(begins).split("|")[2]


ADDRESSES, LIMITS_TABLE = 0, 1
API, ALTO = ApiLimits(), AltoSettings(topology="x")
TOLD = {
    ("gRPC services", ADDRESSES): (
        (Limits(), "requests of {request_bytes}, answers of {answer_bytes}; {calls} calls, {streams} streams"),
        (
            Limits(),
            "{pending_bytes} of requests that are in progress; {connections} connections. Job service",
        ),
        (Limits(), "without a first word {first_message_ns};"),
        (Limits(), "idle {idle_ns} |"),
        (
            JobSettings().limits,
            "requests of {request_bytes}, {calls} calls, {streams} streams, {connections} conn",
        ),
    ),
    ("switch |", ADDRESSES): (
        (LIMITS, "requests of {request_bytes}; {calls} calls, {connections} connections; {pending_bytes} of requests"),
    ),
    ("switch, runtime API", LIMITS_TABLE): (
        (RuntimeApiLimits(), "calls of {message_bytes}, lists of {items}; {connections} connections |"),
        (RuntimeApiLimits(), "first word {first_s}; a call that has begun {message_s};"),
    ),
    ("API server", LIMITS_TABLE): (
        (API, "request {request_bytes}, head {header_bytes}; {connections} connections, {watches} of them watches;"),
        (
            API,
            "{requests_per_s} requests a second of each caller; {sessions} logs and commands, {sessions_of_one} of",
        ),
        (API, "Users: three quarters of connections and watches, {connections_of_one} and {watches_of_one} of each;"),
        (API, "{user_requests_per_s} requests a second of each, {user_seats} at a time, {user_queue} of each wait."),
        (API, "{strangers} connections without a token, {strangers_of_one} of each address |"),
        (API, "a user's turn comes within {queue_s};"),
        (API, "head {head_s}, body {body_s}, reader that takes nothing {send_s}, idle {idle_s};"),
        (API, "log or command in which nothing is said {session_idle_s}, its silent other end {silence_s} |"),
    ),
    ("ALTO", LIMITS_TABLE): ((ALTO, "request {request_bytes}, head 16 KiB; {connections} requests |"),),
    ("kube-scheduler", LIMITS_TABLE): (
        (ExtenderLimits(), "request {request_bytes}, head {header_bytes}; {nodes} nodes; {connections} connections |"),
        (ExtenderLimits(), "head {head_s}, body {body_s}, answer {answer_s}, idle {idle_s} |"),
    ),
    ("metrics", LIMITS_TABLE): ((MetricsLimits(), "{connections} connections | silent {silent_s}, whole {whole_s} |"),),
    ("content producer", LIMITS_TABLE): (
        (Quotas(), " {names} names, {bytes}, {open_writes} open writes ({open_bytes})"),
    ),
    ("memory: hosts", LIMITS_TABLE): (
        (
            FrameLimits(),
            "{connections} connections, {connections_per_address} of an address, {unauthenticated} not auth",
        ),
        (FrameLimits(), "| handshake {handshake_ns}, rest of a frame {frame_ns}, silence {idle_ns} |"),
    ),
    ("worker of `millrace accel`", LIMITS_TABLE): (
        (
            WorkerLimits(),
            "{connections} connections, one session at a time; tables of {most_table_bytes}, {most_held_bytes} in",
        ),
        (WorkerLimits(), "silence {silence_s},"),
    ),
    ("probes", LIMITS_TABLE): (
        (TransferLimits(), "transfers: {connections} connections, {most_bytes} each |"),
        (TransferLimits(), "handshake {handshake_s}, silence {silence_s}, whole {for_s} |"),
    ),
}


@pytest.mark.parametrize("row", TOLD, ids=lambda row: row[0])
def test_limits_are_the_defaults(row: tuple[str, int]) -> None:
    for limits, text in TOLD[row]:
        assert _said(text, limits) in row_of(*row)


def test_a_collector_checks_sources_unless_it_is_told_not_to() -> None:
    assert CollectorSettings().relays == ()
    assert "a report counts from its switch's address alone" in row_of("collector, reports")


def _said(text: str, limits: object) -> str:
    """Return a text with the fields of some limits, as the page writes numbers."""
    return re.sub(r"\{(\w+)\}", lambda match: _number(match[1], getattr(limits, match[1])), text)


def _number(name: str, value: float) -> str:
    if name.endswith("bytes"):
        power = (int(value).bit_length() - 1) // 10
        return f"{int(value) >> 10 * power} {('B', 'KiB', 'MiB', 'GiB')[power]}"
    if name.endswith("_ns"):
        return f"{value / 1e9:g} s"
    if name.endswith("_s") and not name.endswith("per_s"):
        return f"{value:g} s"
    return f"{value:,}"
