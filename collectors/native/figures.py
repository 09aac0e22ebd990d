"""Figures that snapshots copy out of native memory: those of windows, and flows with their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import numpy as np
from numpy.typing import NDArray

from collectors.native.routes import RouteTable
from collectors.native.structures import NONE32, NONE64, RATE_SLOTS
from collectors.native.tables import SignalTable
from collectors.state.accumulator import FlowColumns, SeenFlow, SwitchPath
from collectors.state.gaps import CHANCE, MEAN_BITS, more_hz
from collectors.statistics.columns import UNKNOWN, Integers, Numbers, signed
from collectors.statistics.rate import RateWindow
from collectors.statistics.window import NO_FIGURES, SOURCES, WindowColumns, WindowFigures
from collectors.values import FlowKey, NetworkSignals
from dataplane.topology.values import LinkKey


def figures_of(cell: np.void) -> WindowFigures:
    """Return the figures of a window to which something came."""
    samples, tx_mean, queues, buffers = (int(cell[name]) for name in ("samples", "tx_mean", "queues", "buffers"))
    newest_queues = int(cell["newest_queues"])
    delays = [int(cell[name]) if samples else None for name in ("mean", "p50", "p99", "weighted", "greatest")]
    return WindowFigures(
        delay_mean_ns=delays[0],
        delay_p50_ns=delays[1],
        delay_p99_ns=delays[2],
        delay_ewma_ns=delays[3],
        delay_max_ns=delays[4],
        source=SOURCES[cell["source"]],
        samples=samples,
        queue_occupancy_frames=int(cell["queue_total"]) / queues if queues else None,
        tx_bytes_per_window=None if tx_mean == NONE64 else tx_mean,
        newest_ns=int(cell["newest_ns"]),
        buffer_occupancy_frames=int(cell["buffer_total"]) / buffers if buffers else None,
        newest_delay_ns=_known(cell["newest_delay_ns"]),
        newest_queue_frames=int(cell["newest_queue_total"]) / newest_queues if newest_queues else None,
        newest_tx_bytes=_known(cell["newest_tx"]),
    )


def columns_of(cells: NDArray[np.void]) -> WindowColumns:
    """Return the figures of many windows side by side."""
    is_known = cells["known"] != 0
    # Cells never written are 0, and 0 / 0 is NaN: unknown.
    with np.errstate(invalid="ignore"):
        queue, buffer = cells["queue_total"] / cells["queues"], cells["buffer_total"] / cells["buffers"]
        newest_queue = cells["newest_queue_total"] / cells["newest_queues"]
    return WindowColumns(
        delay_mean_ns=signed(cells["mean"]),
        delay_p50_ns=signed(cells["p50"]),
        delay_p99_ns=signed(cells["p99"]),
        delay_ewma_ns=signed(cells["weighted"]),
        delay_max_ns=signed(cells["greatest"]),
        source=signed(cells["source"]),
        samples=signed(cells["samples"]),
        queue_occupancy_frames=queue,
        tx_bytes_per_window=np.where(is_known, signed(cells["tx_mean"]), UNKNOWN),
        newest_ns=np.where(is_known, signed(cells["newest_ns"]), UNKNOWN),
        buffer_occupancy_frames=buffer,
        newest_delay_ns=np.where(is_known, signed(cells["newest_delay_ns"]), UNKNOWN),
        newest_queue_frames=newest_queue,
        newest_tx_bytes=np.where(is_known, signed(cells["newest_tx"]), UNKNOWN),
    )


def _known(word: np.uint64) -> int | None:
    """Return a word as a number, None for NONE64."""
    return None if word == NONE64 else int(word)


@dataclass(frozen=True, slots=True)
class NativePaths:
    """The paths over the switches at one time, by their number.

    `host_links` has the number of the link to each host's switch, that of the link from there, and -1 at the end.
    """

    routes: RouteTable
    hosts: Sequence[str]
    host_links: tuple[Integers, Integers]
    figures: NDArray[np.void]

    def path(self, route: int, source: int, target: int) -> SwitchPath:
        """Return a path from and to hosts, NONE32 where the topology does not have them."""
        switches = self.routes.switches[route]
        ends = [() if host == NONE32 else (self.hosts[host],) for host in (source, target)]
        stops = (*ends[0], *switches, *ends[1])
        figures = figures_of(self.figures[route]) if self.figures[route]["known"] else NO_FIGURES
        return SwitchPath(switches, tuple(map(LinkKey, stops, stops[1:])), figures)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """Keys of flows side by side, and what follows from them; `words` and `hosts` are those that it was made of."""

    words: NDArray[np.uint64]
    hosts: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    addresses: Sequence[bytes]
    src: Integers
    dst: Integers
    protocol: Integers
    src_port: Integers
    dst_port: Integers
    access_links: tuple[Integers, Integers]


class FlowMemory:
    """The last flows' keys and routes: while flows stay the same, so do their columns, the objects too."""

    def __init__(self) -> None:
        # Replaced as a whole, as several threads may make columns.
        self._keys: _Keys | None = None
        self._routes: tuple[Integers, int, Integers, Integers] | None = None

    def keys(self, cells: NDArray[np.void], paths: NativePaths) -> _Keys:
        """Return the keys of flows as columns."""
        words, hosts = cells["key"], (cells["source_host"], cells["target_host"])
        last = self._keys
        if last is not None and np.array_equal(words, last.words) and all(map(np.array_equal, hosts, last.hosts)):
            return last
        about: NDArray[np.uint64] = words[:, 4]
        ends = (np.minimum(host, len(paths.hosts)) for host in hosts)
        to_switch, to_host = (links[host] for links, host in zip(paths.host_links, ends, strict=True))
        self._keys = keys = _Keys(
            words,
            hosts,
            *_addresses(words),
            protocol=_field(about, 8, 0xFF),
            src_port=_field(about, 32, 0xFFFF),
            dst_port=_field(about, 16, 0xFFFF),
            access_links=(to_switch, to_host),
        )
        return keys

    def routes(self, numbers: Integers, count: int) -> tuple[Integers, Integers]:
        """Return which route numbers below a count there are, in order, and each flow's place among them."""
        last = self._routes
        if last is None or last[1] != count or not np.array_equal(numbers, last[0]):
            self._routes = last = numbers, count, *_used(numbers, count)
        return last[2], last[3]


class NativeFlows:
    """Flows at one time, as copies of their cells; iteration is the reference of `columns`."""

    def __init__(  # noqa: PLR0917 - what flows are read with
        self,
        cells: NDArray[np.void],
        paths: NativePaths,
        rate: RateWindow,
        sample_every: int,
        now_ns: int,
        memory: FlowMemory,
    ) -> None:
        self._cells, self._memory = cells, memory
        self._paths = paths
        self._rate = rate
        self._sample_every = sample_every
        self._now_ns = now_ns

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[SeenFlow]:
        paths: dict[tuple[int, int, int], SwitchPath] = {}
        addresses: dict[tuple[int, int, int], IPv4Address | IPv6Address] = {}
        names = ("route", "source_host", "target_host", "path_ns", "key")
        columns = (self._cells[name].tolist() for name in names)
        gaps = zip(self._gap_means().tolist(), self._gap_shares().tolist(), strict=True)
        nbytes, _, now_ns = self._counted()
        counts = zip(nbytes.tolist(), self._cells["first_ns"].tolist(), now_ns.tolist(), strict=True)
        for route, source, target, path_ns, words, counted, (gap_ns, variation) in zip(
            *columns, counts, gaps, strict=True
        ):
            ends = route, source, target
            path = paths.get(ends)
            if path is None:
                path = paths[ends] = self._paths.path(*ends)
            mean_ns = None if gap_ns == UNKNOWN else gap_ns
            yield SeenFlow(_flow(words, addresses), path, path_ns, *self._rate_of(*counted), mean_ns, variation)

    def columns(self) -> FlowColumns:
        """Return the flows side by side, in the same order."""
        cells = self._cells
        keys = self._memory.keys(cells, self._paths)
        used, route = self._memory.routes(signed(cells["route"]), len(self._paths.figures))
        nbytes, first_ns, now_ns = self._counted()
        counted = cells["first_ns"] != NONE64
        return FlowColumns(
            keys.addresses,
            self._paths.routes.columns(used, self._paths.figures),
            src=keys.src,
            dst=keys.dst,
            protocol=keys.protocol,
            src_port=keys.src_port,
            dst_port=keys.dst_port,
            route=route,
            access_links=keys.access_links,
            received_ns=signed(cells["path_ns"]),
            rate_bps=np.where(counted, self._rate.rates_bps(nbytes, self._sample_every, first_ns, now_ns), UNKNOWN),
            measured_bytes=nbytes,
            is_young=counted & (first_ns > self._rate.begin_ns(now_ns)),
            gap_mean_ns=self._gap_means(),
            gap_variation=self._gap_shares(),
        )

    def _gap_means(self) -> Integers:
        """Return the mean gap between each flow's packets, UNKNOWN before there were any."""
        means = (self._cells["gap_mean"] >> MEAN_BITS).astype(np.int64)
        return np.where(self._cells["gap_count"] != 0, means, UNKNOWN)

    def _gap_shares(self) -> Numbers:
        """Return the variance of each flow's gaps as a share of the mean's square, 1 at most."""
        shares: Numbers = np.minimum(self._cells["gap_variation"], CHANCE) / CHANCE
        return shares

    def _counted(self) -> tuple[Integers, Integers, Integers]:
        """Return each flow's bytes in the window, when the first was sent (0 where none was), and the flow's time."""
        cells, window = self._cells, self._rate
        sent_ns, heard_ns = signed(cells["rate_ns"]), signed(cells["heard_ns"])
        now_ns = sent_ns + np.maximum(self._now_ns - heard_ns, 0)
        newest, slots = (sent_ns // window.slot_ns)[:, None], np.arange(RATE_SLOTS)[None, :]
        numbers = newest - (newest - slots) % RATE_SLOTS
        inside = numbers >= (now_ns // window.slot_ns - RATE_SLOTS + 1)[:, None]
        nbytes = np.where(inside, cells["rate_bytes"], 0).sum(axis=1, dtype=np.int64)
        first_ns = np.where(cells["first_ns"] == NONE64, 0, signed(cells["first_ns"]))
        return nbytes, first_ns, now_ns

    def _rate_of(self, nbytes: int, first_ns: int, now_ns: int) -> tuple[int | None, int, bool]:
        """Return a flow's rate, None where no packet was counted, the bytes behind it, and whether it is young."""
        if first_ns == NONE64:
            return None, nbytes, False
        rate_bps = self._rate.rate_bps(nbytes * self._sample_every, first_ns, now_ns)
        return rate_bps, nbytes, first_ns > self._rate.begins_ns(now_ns)


def signals_of(table: SignalTable, cells: NDArray[np.void]) -> NetworkSignals:
    """Return the signs that the network has changed; `cells` are those of flows that have grown."""
    addresses: dict[tuple[int, int, int], IPv4Address | IPv6Address] = {}
    columns = (cells[name].tolist() for name in ("key", "mean", "known"))
    return NetworkSignals(
        queue_frames=table.queue - 1 if table.queue else None,
        queue_reported=bool(table.queue_reported),
        queue_full=bool(table.queue_full),
        grown={
            _flow(words, addresses): more_hz(mean, known_mean) for words, mean, known_mean in zip(*columns, strict=True)
        },
        unlisted=table.unlisted,
    )


def _used(numbers: Integers, count: int) -> tuple[Integers, Integers]:
    """Return which numbers below a count there are, in order, and each row's place among them."""
    (used,) = np.nonzero(np.bincount(numbers, minlength=count))
    places = np.zeros(count, np.int64)
    places[used] = np.arange(len(used))
    return used, places[numbers]


def _addresses(keys: NDArray[np.uint64]) -> tuple[list[bytes], Integers, Integers]:
    """Return all addresses of keys, packed and each once, and the places of sources and destinations in them."""
    version, count = np.tile(keys[:, 4] & 0xF, 2), len(keys)
    high, low = np.concatenate((keys[:, 0:2], keys[:, 2:4])).T
    four = version == 4
    values, places = np.unique(low[four], return_inverse=True)
    index: Integers = np.zeros(2 * count, np.int64)
    index[four] = places
    packed = _packed(values.astype(">u4").tobytes(), 4)
    if not four.all():
        words = np.stack((high[~four], low[~four]), axis=1)
        distinct, places = np.unique(words, axis=0, return_inverse=True)
        index[~four] = places + len(packed)
        packed += _packed(distinct.astype(">u8").tobytes(), 16)
    return packed, index[:count], index[count:]


def _packed(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def distinct_flows(keys: NDArray[np.uint64]) -> tuple[list[FlowKey], Integers]:
    """Return the distinct flows among rows of key words, and each row's place among them."""
    if not len(keys):
        return [], np.zeros(0, np.int64)
    _, first, places = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    addresses: dict[tuple[int, int, int], IPv4Address | IPv6Address] = {}
    return [_flow(words, addresses) for words in keys[first].tolist()], places.reshape(-1)


def _flow(words: Sequence[int], cache: dict[tuple[int, int, int], IPv4Address | IPv6Address]) -> FlowKey:
    source_high, source_low, target_high, target_low, about = words
    source = _address(about & 0xF, source_high, source_low, cache)
    target = _address(about & 0xF, target_high, target_low, cache)
    return FlowKey(source, target, about >> 8 & 0xFF, about >> 32 & 0xFFFF, about >> 16 & 0xFFFF)


def _address(
    version: int, high: int, low: int, cache: dict[tuple[int, int, int], IPv4Address | IPv6Address]
) -> IPv4Address | IPv6Address:
    address = cache.get((version, high, low))
    if address is None:
        kind: type[IPv4Address | IPv6Address] = IPv4Address if version == 4 else IPv6Address
        address = cache[version, high, low] = kind(high << 64 | low)
    return address


def _field(words: NDArray[np.uint64], shift: int, mask: int) -> Integers:
    return (words >> shift & mask).astype(np.int64)
