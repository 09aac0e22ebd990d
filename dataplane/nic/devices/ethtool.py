"""Ethtool's generic netlink family (kernel Documentation/networking/ethtool-netlink), as far as ports need it.

pyroute2 supports rings and strings; the messages that it lacks are declared here, with the kernel's numbers.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ClassVar

from pyroute2.netlink import NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, genlmsg, nla
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.generic import GenericNetlinkSocket
from pyroute2.netlink.generic.ethtool import (
    ETHTOOL_GENL_NAME,
    ETHTOOL_GENL_VERSION,
    ETHTOOL_MSG_FEATURES_GET,
    ETHTOOL_MSG_FEATURES_SET,
    ETHTOOL_MSG_LINKSTATE_GET,
    ETHTOOL_MSG_RINGS_GET,
    ETHTOOL_MSG_RINGS_SET,
    ETHTOOL_MSG_STRSET_GET,
    ethtool_linkstate_msg,
    ethtool_rings_msg,
    ethtool_strset_msg,
    ethtoolheader,
)

from dataplane.errors import PortError
from dataplane.nic.devices.device import refusal

_COMPACT_BITSETS, _OMIT_REPLY = 1, 2
_FEATURE_STRINGS = 4
"""ETH_SS_FEATURES: the names of a kernel's features, the same for all of its devices."""


class CompactBitset(nla):  # type: ignore[misc] # pyroute2 is untyped
    """ETHTOOL_A_BITSET_* as u32 words, lowest bit first, as ETHTOOL_FLAG_COMPACT_BITSETS requests."""

    nla_flags = NLA_F_NESTED
    nla_map = (
        ("ETHTOOL_A_BITSET_UNSPEC", "none"),
        ("ETHTOOL_A_BITSET_NOMASK", "flag"),
        ("ETHTOOL_A_BITSET_SIZE", "uint32"),
        ("ETHTOOL_A_BITSET_BITS", "none"),
        ("ETHTOOL_A_BITSET_VALUE", "cdata"),
        ("ETHTOOL_A_BITSET_MASK", "cdata"),
    )


class ChannelsMessage(genlmsg):  # type: ignore[misc]
    """ETHTOOL_A_CHANNELS_*: a device's maximum and current numbers of queues."""

    nla_map = (
        ("ETHTOOL_A_CHANNELS_UNSPEC", "none"),
        ("ETHTOOL_A_CHANNELS_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_CHANNELS_RX_MAX", "uint32"),
        ("ETHTOOL_A_CHANNELS_TX_MAX", "uint32"),
        ("ETHTOOL_A_CHANNELS_OTHER_MAX", "uint32"),
        ("ETHTOOL_A_CHANNELS_COMBINED_MAX", "uint32"),
        ("ETHTOOL_A_CHANNELS_RX_COUNT", "uint32"),
        ("ETHTOOL_A_CHANNELS_TX_COUNT", "uint32"),
        ("ETHTOOL_A_CHANNELS_OTHER_COUNT", "uint32"),
        ("ETHTOOL_A_CHANNELS_COMBINED_COUNT", "uint32"),
    )
    ethtoolheader = ethtoolheader


class FeaturesMessage(genlmsg):  # type: ignore[misc]
    """ETHTOOL_A_FEATURES_*: supported, wanted and active features of a device; bits in the order of their names."""

    nla_map = (
        ("ETHTOOL_A_FEATURES_UNSPEC", "none"),
        ("ETHTOOL_A_FEATURES_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_FEATURES_HW", "compact"),
        ("ETHTOOL_A_FEATURES_WANTED", "compact"),
        ("ETHTOOL_A_FEATURES_ACTIVE", "compact"),
        ("ETHTOOL_A_FEATURES_NOCHANGE", "compact"),
    )
    ethtoolheader = ethtoolheader
    compact = CompactBitset


class TimestampingMessage(genlmsg):  # type: ignore[misc]
    """ETHTOOL_A_TSINFO_*: the clocks that a device stamps frames with."""

    nla_map = (
        ("ETHTOOL_A_TSINFO_UNSPEC", "none"),
        ("ETHTOOL_A_TSINFO_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_TSINFO_TIMESTAMPING", "compact"),
        ("ETHTOOL_A_TSINFO_TX_TYPES", "compact"),
        ("ETHTOOL_A_TSINFO_RX_FILTERS", "compact"),
        ("ETHTOOL_A_TSINFO_PHC_INDEX", "uint32"),
    )
    ethtoolheader = ethtoolheader
    compact = CompactBitset


class SteeringMessage(genlmsg):  # type: ignore[misc]
    """ETHTOOL_A_RSS_*: the queue for each value of a flow's hash."""

    nla_map = (
        ("ETHTOOL_A_RSS_UNSPEC", "none"),
        ("ETHTOOL_A_RSS_HEADER", "ethtoolheader"),
        ("ETHTOOL_A_RSS_CONTEXT", "uint32"),
        ("ETHTOOL_A_RSS_HFUNC", "uint32"),
        ("ETHTOOL_A_RSS_INDIR", "cdata"),
        ("ETHTOOL_A_RSS_HKEY", "cdata"),
    )
    ethtoolheader = ethtoolheader


@dataclass(frozen=True, slots=True)
class _Command:
    """ETHTOOL_MSG_*: its number, its request and reply message, and the name that users know."""

    number: int
    message: Any  # a pyroute2 class, which is untyped
    what: str

    @property
    def prefix(self) -> str:
        """Return the prefix of the message's attribute names."""
        name: str = self.message.nla_map[1][0]
        return name.removesuffix("HEADER")


_STRINGS_GET = _Command(ETHTOOL_MSG_STRSET_GET, ethtool_strset_msg, "features")
_LINK_GET = _Command(ETHTOOL_MSG_LINKSTATE_GET, ethtool_linkstate_msg, "link state")
_FEATURES_GET = _Command(ETHTOOL_MSG_FEATURES_GET, FeaturesMessage, "features")
_FEATURES_SET = _Command(ETHTOOL_MSG_FEATURES_SET, FeaturesMessage, "features cannot be set")
_RINGS_GET = _Command(ETHTOOL_MSG_RINGS_GET, ethtool_rings_msg, "rings")
_RINGS_SET = _Command(ETHTOOL_MSG_RINGS_SET, ethtool_rings_msg, "rings")
_CHANNELS_GET = _Command(17, ChannelsMessage, "channels")
_CHANNELS_SET = _Command(18, ChannelsMessage, "channels")
_STAMPS_GET = _Command(25, TimestampingMessage, "time stamps")
_STEERING_GET = _Command(38, SteeringMessage, "steering")


class EthtoolSocket:
    """Queries a device in the network namespace of the thread that made it; every failure is PortError."""

    _feature_names: ClassVar[tuple[str, ...]] = ()
    """Names of this kernel's features, in bit order; queried once."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        try:
            self._socket = GenericNetlinkSocket(ext_ack=True)
        except OSError as error:
            raise refusal(interface, "cannot be inspected", error) from error
        try:
            self._socket.bind(ETHTOOL_GENL_NAME, ChannelsMessage)
        except NetlinkError as error:
            self._socket.close()
            raise PortError(
                f"interface {interface}: the kernel has no ethtool netlink (CONFIG_ETHTOOL_NETLINK)"
            ) from error

    def __enter__(self) -> EthtoolSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def read_channels(self) -> Mapping[str, int] | None:
        """Return rx_max, tx_max, combined_max, rx_count, tx_count, combined_count; None: not reported."""
        return self._read_numbers(_CHANNELS_GET)

    def set_channels(self, counts: Mapping[str, int]) -> None:
        """Set rx_count, tx_count, combined_count."""
        self._set_numbers(_CHANNELS_SET, counts)

    def read_rings(self) -> Mapping[str, int] | None:
        """Return rx, tx, rx_max, tx_max in frames; None: the device does not report them."""
        return self._read_numbers(_RINGS_GET)

    def set_rings(self, frames: Mapping[str, int]) -> None:
        """Set rx, tx."""
        self._set_numbers(_RINGS_SET, frames)

    def read_features(self) -> dict[str, bool]:
        """Return whether each feature is on."""
        names = self._read_names()
        reply = self._ask(_FEATURES_GET, _COMPACT_BITSETS)
        active = _bits(reply, "ETHTOOL_A_FEATURES_ACTIVE")
        return {name: bool(active >> position & 1) for position, name in enumerate(names) if name}

    def set_features(self, wanted: Mapping[str, bool]) -> None:
        """Request features; those that the device cannot change stay as they are, unknown names are ignored."""
        names = self._read_names()
        positions = {name: position for position, name in enumerate(names)}
        supported = {positions[name]: is_on for name, is_on in wanted.items() if name in positions}
        value = sum(1 << position for position, is_on in supported.items() if is_on)
        mask = sum(1 << position for position in supported)
        nbytes = (len(names) + 31) // 32 * 4
        bitset = [
            ("ETHTOOL_A_BITSET_SIZE", len(names)),
            ("ETHTOOL_A_BITSET_VALUE", value.to_bytes(nbytes, "little")),
            ("ETHTOOL_A_BITSET_MASK", mask.to_bytes(nbytes, "little")),
        ]
        attribute = ("ETHTOOL_A_FEATURES_WANTED", {"attrs": bitset})
        self._ask(_FEATURES_SET, _OMIT_REPLY, [attribute])

    def read_timestamping(self) -> tuple[int, int, int, int | None]:
        """Return the bits of SOF_TIMESTAMPING_*, of transmit types, of receive filters, and the number of the clock."""
        reply = self._ask(_STAMPS_GET, _COMPACT_BITSETS)
        what, types, filters = (
            _bits(reply, f"ETHTOOL_A_TSINFO_{field}") for field in ("TIMESTAMPING", "TX_TYPES", "RX_FILTERS")
        )
        return what, types, filters, None if reply is None else reply.get_attr("ETHTOOL_A_TSINFO_PHC_INDEX")

    def read_indirection(self) -> tuple[int, ...] | None:
        """Return the queue for each value of a flow's hash; None: the device does not choose queues that way."""
        reply = self._ask(_STEERING_GET)
        table = None if reply is None else reply.get_attr("ETHTOOL_A_RSS_INDIR")
        return None if table is None else tuple(memoryview(bytes(table)).cast("I"))

    def has_link(self) -> bool:
        """Return whether the device has a carrier."""
        reply = self._ask(_LINK_GET)
        return bool(reply.get_attr("ETHTOOL_A_LINKSTATE_LINK"))

    def _read_names(self) -> tuple[str, ...]:
        if not EthtoolSocket._feature_names:
            wanted = {"attrs": [("ETHTOOL_A_STRINGSET_ID", _FEATURE_STRINGS)]}
            sets = ("ETHTOOL_A_STRSET_STRINGSETS", {"attrs": [("ETHTOOL_A_STRINGSETS_STRINGSET", wanted)]})
            reply = self._ask(_STRINGS_GET, 0, [sets])
            string_sets = reply.get_attr("ETHTOOL_A_STRSET_STRINGSETS").get_attr("ETHTOOL_A_STRINGSETS_STRINGSET")
            strings = string_sets.get_attr("ETHTOOL_A_STRINGSET_STRINGS").get_attrs("ETHTOOL_A_STRINGS_STRING")
            EthtoolSocket._feature_names = tuple(each.get_attr("ETHTOOL_A_STRING_VALUE") for each in strings)
        return EthtoolSocket._feature_names

    def _read_numbers(self, command: _Command) -> Mapping[str, int] | None:
        reply = self._ask(command)
        if reply is None:
            return None
        numbers = {name.removeprefix(command.prefix).lower(): value for name, value in reply["attrs"]}
        return {name: value for name, value in numbers.items() if isinstance(value, int)}

    def _set_numbers(self, command: _Command, values: Mapping[str, int]) -> None:
        asked = ", ".join(f"{name.removesuffix('_count')} {value}" for name, value in values.items())
        attributes = [(f"{command.prefix}{name.upper()}", value) for name, value in values.items()]
        described = replace(command, what=f"{command.what} ({asked}) cannot be set")
        self._ask(described, 0, attributes)

    def _ask(self, command: _Command, flags: int = 0, attributes: list[tuple[str, Any]] | None = None) -> Any:  # noqa: ANN401 - pyroute2 is untyped
        """Return the reply; None if there is none, or if a query concerns something that the device lacks."""
        request = command.message()
        request["cmd"], request["version"] = command.number, ETHTOOL_GENL_VERSION
        header = [("ETHTOOL_A_HEADER_DEV_NAME", self._interface), ("ETHTOOL_A_HEADER_FLAGS", flags)]
        request["attrs"] = [(f"{command.prefix}HEADER", {"attrs": header}), *(attributes or [])]
        self._socket.marshal.msg_map[self._socket.prid] = command.message
        netlink_flags = NLM_F_REQUEST | (NLM_F_ACK if attributes and command is not _STRINGS_GET else 0)
        try:
            replies = list(self._socket.nlm_request(request, msg_type=self._socket.prid, msg_flags=netlink_flags))
        except NetlinkError as error:
            if error.code == errno.EOPNOTSUPP and not attributes:
                return None
            raise explain(self._interface, command.what, error) from error
        return replies[0] if replies else None


def explain(interface: str, what: str, error: NetlinkError) -> PortError:
    """Return the error of a device that refused a request, with the kernel's own message if there is one."""
    code, text = error.args
    if code == errno.ENODEV:
        return PortError(f"interface {interface}: no such device in this network namespace")
    if code in {errno.EPERM, errno.EACCES} or text is None:
        return refusal(interface, what, OSError(code, text))
    if code == errno.EOPNOTSUPP:
        return PortError(f"interface {interface}: {what}: its driver does not support it")
    return PortError(f"interface {interface}: {what}: {text}")


def _bits(reply: Any, attribute: str) -> int:  # noqa: ANN401
    """Return a bitset of a reply as a number, 0 if the device has none."""
    bitset = None if reply is None else reply.get_attr(attribute)
    value = None if bitset is None else bitset.get_attr("ETHTOOL_A_BITSET_VALUE")
    return 0 if value is None else int.from_bytes(bytes(value), "little")
