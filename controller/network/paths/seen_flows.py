"""Telemetry of the managed flows: which 5-tuple belongs to which flow, their positions, their rates.

A flow is all traffic between two hosts, or the part of it with the protocol and ports that the flow names. A 5-tuple
belongs to the most specific flow, as its packets do in the switches' tables.

All 5-tuples of a snapshot are processed side by side. A flow's code is a number: of the pair of its hosts, or of the
flow itself if it names more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from collectors.state.path_states import PathColumns, columns_of
from collectors.values import FlowKey, PathState, Snapshot
from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import PROBE_UDP_PORT, FlowSpec
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.deciding.flow_table import rate_variance, rate_variances
from controller.network.paths.deciding.graph import Network
from controller.network.paths.deciding.located import UNKNOWN
from controller.network.paths.deciding.path_book import NOWHERE, PathBook
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES
from controller.network.tables.flow_paths import specificity
from dataplane.wire.ipv4 import PROTOCOL_UDP

# Rates of flows as telemetry measures them, with their uncertainty; the rates of several 5-tuples add up.
#
# `MeasuredRate` is for one flow and serves as the reference, `MeasuredRates` has many side by side.


_SILENT_GAPS: Final = 8
"""A flow that is silent for this many of its gaps has ended; with random packets, one in 3,000 has not."""
_LEAST_SILENCE_NS: Final = 100_000_000
"""Shorter silence never ends a flow: reports may be this late."""


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """A rate, the bytes behind it, its variance, and the part that has ended: see `Assignment`."""

    rate_bps: int
    nbytes: int
    past_bps: float
    variance: float

    @classmethod
    def of(cls, state: PathState) -> MeasuredRate | None:
        """Return the rate of a 5-tuple, None if not known yet."""
        if state.rate_bps is None:
            return None
        gap_ns = state.gap_mean_ns
        if gap_ns is not None and state.age_ns > max(_SILENT_GAPS * gap_ns, _LEAST_SILENCE_NS):
            return cls(state.rate_bps, state.measured_bytes, float(state.rate_bps), 0.0)
        packets = max(state.measured_bytes / DEFAULT_PACKET_BYTES, 1.0)
        past_bps = state.rate_bps / packets if state.is_young else 0.0
        variance = state.gap_variation * rate_variance(state.rate_bps, state.measured_bytes)
        return cls(state.rate_bps, state.measured_bytes, past_bps, variance)

    def __add__(self, other: MeasuredRate) -> MeasuredRate:
        return MeasuredRate(
            self.rate_bps + other.rate_bps,
            self.nbytes + other.nbytes,
            self.past_bps + other.past_bps,
            self.variance + other.variance,
        )

    def given_to(self, flow: Assignment) -> Assignment:
        """Return a flow with this rate."""
        return replace(
            flow,
            rate_bps=self.rate_bps,
            measured_bytes=self.nbytes,
            past_bps=round(self.past_bps),
            uncertain_bps=int(math.sqrt(round(self.variance))),
        )


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRates:
    """Columns of many `MeasuredRate`; where `rate_bps` is UNKNOWN the rest is meaningless."""

    rate_bps: Longs
    nbytes: Longs
    past_bps: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]

    @classmethod
    def of(cls, paths: PathColumns) -> MeasuredRates:
        """Return the rates of 5-tuples."""
        rate_bps, nbytes = paths.integers("rate_bps"), paths.integers("measured_bytes")
        gap_ns, age_ns = paths.integers("gap_mean_ns"), paths.integers("age_ns")
        is_over = (gap_ns != UNKNOWN) & (age_ns > np.maximum(_SILENT_GAPS * gap_ns, _LEAST_SILENCE_NS))
        packets = np.maximum(nbytes / DEFAULT_PACKET_BYTES, 1.0)
        past_bps = np.where(paths.flags("is_young"), rate_bps / packets, 0.0)
        return cls(
            rate_bps,
            nbytes,
            np.where(is_over, rate_bps.astype(np.float64), past_bps),
            np.where(is_over, 0.0, paths.floats("gap_variation") * rate_variances(rate_bps, nbytes)),
        )

    def summed(self, group: Longs, count: int) -> MeasuredRates:
        """Return the sums of groups; those of a group with an unknown rate are unknown, or without any."""
        known_rates = self.rate_bps != UNKNOWN
        rates_bps, nbytes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        # One after the other, so that sums of floats are those of the reference.
        np.add.at(rates_bps, group[known_rates], self.rate_bps[known_rates])
        np.add.at(nbytes, group[known_rates], self.nbytes[known_rates])
        past_bps = np.bincount(group[known_rates], self.past_bps[known_rates], count).astype(np.float64)
        variance = np.bincount(group[known_rates], self.variance[known_rates], count).astype(np.float64)
        rates_bps[group[~known_rates]] = UNKNOWN
        return MeasuredRates(rates_bps, nbytes, past_bps, variance)

    def rows(self, chosen: Longs | npt.NDArray[np.bool_]) -> MeasuredRates:
        """Return some of them."""
        return MeasuredRates(self.rate_bps[chosen], self.nbytes[chosen], self.past_bps[chosen], self.variance[chosen])

    @property
    def uncertain_bps(self) -> Longs:
        """One standard deviation of each."""
        deviation: Longs = np.sqrt(np.rint(self.variance)).astype(np.int64)
        return deviation


NO_FLOW: Final = -1
"""Code of a 5-tuple whose hosts are not both in the topology."""
_MOSTLY: Final = 0.85
"""A pair with this share on one path counts there as a whole: overestimating a link's load is the safer error."""
_REMEMBERED: Final = 65_536

Named = tuple[int, int, int, int]
"""The code of a pair of hosts, protocol, source port and destination port."""


class SeenFlows:
    """Names measured 5-tuples by the flows that they belong to."""

    def __init__(self, network: Network, flows: Iterable[FlowSpec]) -> None:
        topology = network.topology
        self._network, self._topology = network, topology
        self._host_number = {host.name: number for number, host in enumerate(topology.hosts)}
        self._host_by_packed = {
            address.packed: self._host_number[host.name] for address, host in topology.host_by_address.items()
        }
        self.host_switch: Longs = np.array([_switch_of(network, host.name) for host in topology.hosts], np.int64)
        self._named: dict[FlowSpec, list[FlowSpec]] = {}
        self._codes: dict[FlowSpec, int] = {}
        self._specs: list[FlowSpec] = []
        self._known: dict[Named, int] = {}
        self._last: tuple[Snapshot, PathBook, SeenRows] | None = None
        for flow in flows:
            self.name(flow)

    def name(self, flow: FlowSpec) -> None:
        """Distinguish a flow that names protocol or ports from the others of its hosts."""
        pair = FlowSpec(flow.src_host, flow.dst_host)
        named = self._named.setdefault(pair, [])
        if flow != pair and flow not in named:
            named.append(flow)
            named.sort(key=specificity, reverse=True)
            self._begin_anew()

    def forget(self, flow: FlowSpec) -> None:
        """Count a flow among the others of its hosts again."""
        pair = FlowSpec(flow.src_host, flow.dst_host)
        self._named[pair] = [other for other in self._named.get(pair, ()) if other != flow]
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._known.clear()
        self._last = None

    def pair_of(self, key: FlowKey) -> FlowSpec | None:
        """Return the hosts of a 5-tuple, None unless both are in the topology."""
        hosts = self._topology.host_by_address
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        return None if src is None or dst is None or src is dst else FlowSpec(src.name, dst.name)

    def flow_of(self, key: FlowKey) -> FlowSpec | None:
        """Return the flow that a 5-tuple belongs to, None unless both hosts are in the topology."""
        pair = self.pair_of(key)
        named = () if pair is None else self._named.get(pair, ())
        about = key.protocol, key.src_port, key.dst_port
        return next((flow for flow in named if _has(flow, *about)), pair)

    def code(self, flow: FlowSpec) -> int:
        """Return a flow's code; both of its hosts are in the topology."""
        if flow == FlowSpec(flow.src_host, flow.dst_host):
            return self._host_number[flow.src_host] * len(self._host_number) + self._host_number[flow.dst_host]
        if flow not in self._codes:
            self._codes[flow] = len(self._host_number) ** 2 + len(self._specs)
            self._specs.append(flow)
        return self._codes[flow]

    def flow(self, code: int) -> FlowSpec:
        """Return the flow of a code."""
        hosts = len(self._host_number)
        if code >= hosts**2:
            return self._specs[code - hosts**2]
        src, dst = divmod(code, hosts)
        return FlowSpec(self._topology.hosts[src].name, self._topology.hosts[dst].name)

    def rows(self, snapshot: Snapshot) -> SeenRows:
        """Return a snapshot's 5-tuples with the flows that they belong to."""
        book, last = self._network.book, self._last
        if last is not None and last[0] is snapshot and last[1] is book:
            return last[2]
        paths = columns_of(snapshot.paths)
        if last is not None and last[1] is book and last[2].has_flows_of(paths):
            rows = last[2].with_figures(paths)
        else:
            rows = self._rows(paths, book)
        self._last = snapshot, book, rows
        return rows

    def _rows(self, paths: PathColumns, book: PathBook) -> SeenRows:
        numbers = [self._host_by_packed.get(packed, NOWHERE) for packed in paths.addresses]
        host: Longs = np.array(numbers, np.int64)
        src, dst = host[paths.src], host[paths.dst]
        pair = np.where((src != NOWHERE) & (dst != NOWHERE) & (src != dst), src * len(self._host_number) + dst, NO_FLOW)
        switch = np.append(self.host_switch, NOWHERE)
        path = book.numbers(paths.routes)[paths.route]
        return SeenRows(paths, book, path, src, dst, switch[src], switch[dst], pair, self._flow_codes(paths, pair))

    def _flow_codes(self, paths: PathColumns, pair: Longs) -> Longs:
        """Return the codes of the flows that 5-tuples belong to, of which most are pairs of hosts."""
        named = {self.code(flow): flows for flow, flows in self._named.items() if flows}
        if not named:
            return pair
        codes = pair.copy()
        rows = np.flatnonzero(np.isin(pair, list(named)))
        about = (column[rows].tolist() for column in (pair, paths.protocol, paths.src_port, paths.dst_port))
        for row, key in zip(rows.tolist(), zip(*about, strict=True), strict=True):
            code = self._known.get(key)
            if code is None:
                flow = next((flow for flow in named[key[0]] if _has(flow, *key[1:])), None)
                code = key[0] if flow is None else self.code(flow)
                if len(self._known) < _REMEMBERED:
                    self._known[key] = code
            codes[row] = code
        return codes


@dataclass(frozen=True, slots=True, eq=False)
class SpreadPairs:
    """Parts of pairs of hosts that are not mostly on one path: by the pair's code, and then in order of path."""

    pair: Longs
    path: Longs
    rate_bps: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64]


_NO_PAIRS: Final = SpreadPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
_OF_FLOWS: Final = frozenset({"_grouped", "is_single", "shown", "is_probe", "is_on_way"})
"""Parts of `SeenRows` that do not depend on figures."""


@dataclass(frozen=True, eq=False)
class SeenRows:
    """A snapshot's 5-tuples with their figures, and the flows (`codes`, each once) that they belong to.

    `path` has numbers in `book`; `src` and `dst` are hosts by number, `first` and `last` the switches that those are
    attached to, NOWHERE where the topology lacks them.
    """

    paths: PathColumns
    book: PathBook
    path: Longs
    src: Longs
    dst: Longs
    first: Longs
    last: Longs
    pair: Longs
    code: Longs

    def has_flows_of(self, paths: PathColumns) -> bool:
        """Return whether other figures are of the same 5-tuples on the same paths, by identity of the columns."""
        own = self.paths
        return own.addresses is paths.addresses and all(
            getattr(own, name) is getattr(paths, name)
            for name in ("src", "dst", "protocol", "src_port", "dst_port", "route", "routes")
        )

    def with_figures(self, paths: PathColumns) -> SeenRows:
        """Return these 5-tuples with new figures, and with all that is known of them and does not depend on those."""
        rows = replace(self, paths=paths)
        kept = {name: value for name, value in vars(self).items() if name in _OF_FLOWS}
        vars(rows).update(kept)
        return rows

    @cached_property
    def rates(self) -> MeasuredRates:
        """Rate of each 5-tuple."""
        return MeasuredRates.of(self.paths)

    @cached_property
    def is_probe(self) -> Flags:
        """Flags of the 5-tuples that are probes."""
        probe: Flags = (self.paths.protocol == PROTOCOL_UDP) & (self.paths.dst_port == PROBE_UDP_PORT)
        return probe

    @cached_property
    def is_on_way(self) -> Flags:
        """Flags of the 5-tuples on a network path between the switches of their hosts."""
        rows = self.book.rows
        linked = rows.linked[self.path] & (self.first != NOWHERE) & (self.last != NOWHERE)
        way: Flags = linked & (rows.first[self.path] == self.first) & (rows.last[self.path] == self.last)
        return way

    @cached_property
    def _grouped(self) -> tuple[Longs, Longs, Longs]:
        """Return the rows that belong to flows, those flows' codes, each once, and each row's place among them."""
        rows = np.flatnonzero(self.code != NO_FLOW)
        codes, group = np.unique(self.code[rows], return_inverse=True)
        return rows, codes, group

    @property
    def codes(self) -> Longs:
        """The codes of all flows, each once."""
        return self._grouped[1]

    @cached_property
    def is_single(self) -> bool:
        """True if no two 5-tuples belong to one flow."""
        rows, codes, _ = self._grouped
        return len(codes) == len(rows)

    @cached_property
    def shown(self) -> Longs:
        """The codes of the flows that consist of more than probes, in order of first appearance."""
        rows = np.flatnonzero((self.code != NO_FLOW) & ~self.is_probe)
        codes, first = np.unique(self.code[rows], return_index=True)
        shown: Longs = codes[np.argsort(first)]
        return shown

    @cached_property
    def flow_paths(self) -> Longs:
        """The path that each of `codes` was last seen on; of several 5-tuples, that of the one that sends most."""
        rows, codes, group = self._grouped
        if self.is_single:
            return self.path[rows[np.argsort(group)]]
        rate_bps = np.maximum(self.paths.integers("rate_bps")[rows], 0)
        order = np.lexsort((self.paths.integers("age_ns")[rows], -rate_bps, group))
        firsts = order[np.searchsorted(group[order], np.arange(len(codes)))]
        return self.path[rows[firsts]]

    @cached_property
    def flow_rates(self) -> MeasuredRates:
        """Rate of each of `codes`; 5-tuples add up.

        A flow with a 5-tuple that has no rate yet has none itself: the sum would count that 5-tuple as silent.
        """
        rows, codes, group = self._grouped
        if self.is_single:
            return self.rates.rows(rows[np.argsort(group)])
        return self.rates.rows(rows).summed(group, len(codes))

    def sent_bps(self, codes: Longs) -> Longs:
        """Return the rates of the flows of these codes without probes, 0 if unknown."""
        rows = np.flatnonzero((self.code != NO_FLOW) & ~self.is_probe)
        shown, group = np.unique(self.code[rows], return_inverse=True)
        if not len(shown):
            return np.zeros(len(codes), np.int64)
        rates: Longs = np.zeros(len(shown), np.int64)
        np.add.at(rates, group, np.maximum(self.paths.integers("rate_bps")[rows], 0))
        positions = np.minimum(np.searchsorted(shown, codes), len(shown) - 1)
        return np.where(shown[positions] == codes, rates[positions], 0)

    @cached_property
    def spread_pairs(self) -> SpreadPairs:
        """The paths of the pairs of hosts that are not mostly on one; a 5-tuple without a rate counts for nothing."""
        if self.is_single and self.code is self.pair:
            return _NO_PAIRS
        rows = np.flatnonzero((self.pair != NO_FLOW) & (self.rates.rate_bps > 0) & self.is_on_way)
        width = max(len(self.book), 1)
        keys, group = np.unique(self.pair[rows] * width + self.path[rows], return_inverse=True)
        rates = self.rates.rows(rows).summed(group, len(keys))
        pairs, paths = keys // width, keys % width
        codes, positions = np.unique(pairs, return_inverse=True)
        most, whole = np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
        np.maximum.at(most, positions, rates.rate_bps)
        np.add.at(whole, positions, rates.rate_bps)
        parts = np.flatnonzero((most < _MOSTLY * whole)[positions])
        parts = parts[np.lexsort((self.book.ranks(paths[parts]), pairs[parts]))]
        return SpreadPairs(
            pairs[parts], paths[parts], rates.rate_bps[parts] - rates.past_bps[parts], rates.variance[parts]
        )

    def key(self, row: int) -> tuple[bytes, bytes, int, int, int]:
        """Return a 5-tuple, its addresses packed."""
        paths = self.paths
        ends = paths.addresses[paths.src[row]], paths.addresses[paths.dst[row]]
        return (*ends, int(paths.protocol[row]), int(paths.src_port[row]), int(paths.dst_port[row]))


def is_probe(key: FlowKey) -> bool:
    """Return whether a flow is a link probe, which must stay on its path to keep links measured."""
    return key.protocol == PROTOCOL_UDP and key.dst_port == PROBE_UDP_PORT


def _switch_of(network: Network, host: str) -> int:
    edge = network.topology.attachment.get(host)
    return NOWHERE if edge is None else network.table.switch_number.get(edge.node, NOWHERE)


def _has(flow: FlowSpec, protocol: int, src_port: int, dst_port: int) -> bool:
    """Return whether a 5-tuple between a flow's hosts has the protocol and ports that the flow names."""
    named = ((flow.protocol, protocol), (flow.src_port, src_port), (flow.dst_port, dst_port))
    return all(wanted in (None, seen) for wanted, seen in named)
