"""Settings of exporters: which device is which switch, and how long its figures hold."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from dataplane.clock import NS_PER_S
from dataplane.config import Settings, Strict
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.limits import Limits
from dataplane.wire.sflow import UDP_PORT


class DeviceSettings(Strict, frozen=True):
    """A device that exports the state of one switch of the topology."""

    switch: str
    """The switch's name in the topology."""

    agent: str | None = None
    """The agent address that its datagrams name; null: the address that the topology has as its report source."""

    source: str | None = None
    """The address that its datagrams come from; null: the agent address. Others are refused."""

    interfaces: dict[int, int] | None = None
    """The switch's ports by interface index (ifIndex); null: the index is the port."""

    def __post_init__(self) -> None:
        """Refuse invalid addresses, which the schema cannot express."""
        for name in ("agent", "source"):
            address = getattr(self, name)
            if address is None:
                continue
            try:
                ip_address(address)
            except ValueError:
                raise ValueError(f"{name}: {address!r} is not an IP address") from None


class SflowSettings(Settings, frozen=True):
    """Reception of sFlow version 5: counters, sampled packets and notices of discarded ones."""

    devices: tuple[DeviceSettings, ...]
    """The agents; datagrams of others are counted and ignored."""

    address: str = "127.0.0.1"
    """The local address to listen on; the datagrams are not authenticated, so open it to the agents only."""

    udp_port: Annotated[int, Meta(ge=0, le=65535)] = UDP_PORT
    """The UDP port to listen on, 0 for a free one."""

    stale_after_ns: Annotated[int, Meta(ge=1)] = 90 * NS_PER_S
    """A link whose counters are older is unknown again; agents usually send them every 20 or 30 s."""

    socket_buffer_bytes: Annotated[int, Meta(ge=1)] = 4_194_304
    """Requested size of the kernel's buffer for waiting datagrams; without root it grants at most net.core.rmem_max."""

    max_flows: Annotated[int, Meta(ge=1)] = 4096
    """Maximum number of flows kept from sampled packets; the one unheard for longest is evicted."""


class GnmiDeviceSettings(Strict, frozen=True):
    """A device whose interface counters are subscribed to."""

    switch: str
    """The switch's name in the topology."""

    address: str
    """Its gNMI server: HOST:PORT with TLS, plain:HOST:PORT or unix:PATH."""

    tls: TlsSettings | None = None
    """Certificates for HOST:PORT; null: those that the environment names."""

    username: str | None = None
    """User shown to the server with each call, as SONiC wants it; null: none."""

    password_file: str | None = None
    """File with that user's password in one line."""

    interfaces: dict[str, int] | None = None
    """The switch's ports by interface name; null: the port is the interface's P4Runtime id, or else its ifindex."""


class GnmiSettings(Settings, frozen=True):
    """Subscriptions to interface counters over gNMI (openconfig-interfaces)."""

    devices: tuple[GnmiDeviceSettings, ...]
    """The devices."""

    interval_ns: Annotated[int, Meta(ge=100_000_000)] = NS_PER_S
    """Time between two readings of the counters."""

    stale_after_ns: Annotated[int, Meta(ge=1)] = 10 * NS_PER_S
    """A link whose counters are older is unknown again."""

    timeout_ns: Annotated[int, Meta(ge=1_000_000)] = 10 * NS_PER_S
    """A device that sends nothing for this long, besides the interval, is connected to again."""


Counter: TypeAlias = Literal[
    "in_octets",
    "in_unicast_packets",
    "in_other_packets",
    "in_errors",
    "out_octets",
    "out_unicast_packets",
    "out_other_packets",
    "out_discards",
    "out_errors",
]
"""A counter of an interface, since the device began."""


class OtlpDeviceSettings(Strict, frozen=True):
    """A device that exports metrics over OTLP."""

    switch: str
    """The switch's name in the topology."""

    interfaces: dict[str, int]
    """The switch's ports by interface name."""

    attributes: dict[str, str] | None = None
    """Attributes of its resource; null: `host.name` is the switch's name."""


class OtlpSettings(Settings, frozen=True):
    """Reception of interface counters as OTLP metrics over gRPC, such as SONiC's high-frequency telemetry."""

    devices: tuple[OtlpDeviceSettings, ...]
    """The devices; metrics of others are refused and counted."""

    address: str = "127.0.0.1:4317"
    """A gRPC address: unix:PATH, or HOST:PORT with port 0 for a free one; others than loopback need `tls`."""

    tls: TlsSettings | None = None
    """Certificates for HOST:PORT: the server's own, and by `ca` or `tokens` those of accepted exporters."""

    metrics: dict[Counter, str] | None = None
    """The exporter's names of the counters; null: SONiC's, told by `sai_type_id` and `sai_stat_id`."""

    interface_attribute: str = "interface"
    """The attribute of a point that names its interface, with `metrics`."""

    stale_after_ns: Annotated[int, Meta(ge=1)] = 10 * NS_PER_S
    """A link whose counters are older is unknown again."""

    limits: Limits = Limits()
    """Limits for all exporters together."""
