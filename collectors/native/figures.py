"""What snapshots take out of native memory: figures of windows, and flows with their paths, as copies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.native.structures import MOST_SWITCHES, NONE32, NONE64, RATE_SLOTS
from collectors.native.tables import SignalTable
from collectors.state.accumulator import FlowColumns, SeenFlow, SwitchPath
from collectors.state.gaps import CHANCE, MEAN_BITS, more_hz
from collectors.statistics.columns import UNKNOWN, Integers, WindowColumns
from collectors.statistics.rate import RateWindow
from collectors.statistics.window import NO_FIGURES, SOURCES, WindowFigures
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
    known = cells["known"] != 0
    # What was never written is 0, and 0 / 0 is what is not known.
    with np.errstate(invalid="ignore"):
        queue, buffer = cells["queue_total"] / cells["queues"], cells["buffer_total"] / cells["buffers"]
        newest_queue = cells["newest_queue_total"] / cells["newest_queues"]
    return WindowColumns(
        delay_mean_ns=_signed(cells["mean"]),
        delay_p50_ns=_signed(cells["p50"]),
        delay_p99_ns=_signed(cells["p99"]),
        delay_ewma_ns=_signed(cells["weighted"]),
        delay_max_ns=_signed(cells["greatest"]),
        source=_signed(cells["source"]),
        samples=_signed(cells["samples"]),
        queue_occupancy_frames=queue,
        tx_bytes_per_window=np.where(known, _signed(cells["tx_mean"]), UNKNOWN),
        newest_ns=np.where(known, _signed(cells["newest_ns"]), UNKNOWN),
        buffer_occupancy_frames=buffer,
        newest_delay_ns=np.where(known, _signed(cells["newest_delay_ns"]), UNKNOWN),
        newest_queue_frames=newest_queue,
        newest_tx_bytes=np.where(known, _signed(cells["newest_tx"]), UNKNOWN),
    )


def _known(word: np.uint64) -> int | None:
    """Return a word as a number, None for NONE64."""
    return None if word == NONE64 else int(word)


def _signed(words: NDArray[np.uint64]) -> Integers:
    """Return words as numbers; NONE64 becomes UNKNOWN."""
    return words.astype(np.int64)


@dataclass(frozen=True, slots=True)
class NativePaths:
    """The paths over the switches at one time, by their number."""

    switches: Sequence[str]
    hosts: Sequence[str]
    lengths: Sequence[int]
    nodes: NDArray[np.uint32]
    figures: NDArray[np.void]

    def path(self, route: int, source: int, target: int) -> SwitchPath:
        """Return a path from and to hosts, NONE32 where the topology does not have them."""
        nodes = self.nodes[route * MOST_SWITCHES :][: self.lengths[route]]
        switches = tuple(self.switches[node] for node in nodes.tolist())
        ends = [() if host == NONE32 else (self.hosts[host],) for host in (source, target)]
        stops = (*ends[0], *switches, *ends[1])
        figures = figures_of(self.figures[route]) if self.figures[route]["known"] else NO_FIGURES
        return SwitchPath(switches, tuple(map(LinkKey, stops, stops[1:])), figures)


class NativeFlows:
    """Flows at one time, copies of their cells."""

    def __init__(
        self, cells: NDArray[np.void], paths: NativePaths, rate: RateWindow, sample_every: int, now_ns: int
    ) -> None:
        self._cells = cells
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
        columns = [self._cells[name].tolist() for name in names]
        gaps = self._gap_means().tolist(), self._gap_shares().tolist()
        for route, source, target, path_ns, words, (rate_bps, nbytes, is_young), gap_ns, variation in zip(
            *columns, self._rates(), *gaps, strict=True
        ):
            ends = route, source, target
            path = paths.get(ends)
            if path is None:
                path = paths[ends] = self._paths.path(*ends)
            yield SeenFlow(
                _flow(words, addresses),
                path,
                path_ns,
                rate_bps,
                nbytes,
                is_young,
                None if gap_ns == UNKNOWN else gap_ns,
                variation,
            )

    def columns(self) -> FlowColumns:
        """Return the flows side by side, in the same order."""
        cells, count = self._cells, len(self._cells)
        about: NDArray[np.uint64] = cells["key"][:, 4]
        ends = np.concatenate((cells["key"][:, 0:2], cells["key"][:, 2:4]))
        first_address, address = _distinct(np.tile(about & 0xF, 2), ends[:, 0], ends[:, 1])
        first_path, path = _distinct(cells["route"], cells["source_host"], cells["target_host"])
        names = ("route", "source_host", "target_host")
        rates = list(zip(*self._rates(), strict=True)) or [(), (), ()]
        return FlowColumns(
            [_address_of(int(about[row % count]) & 0xF, *ends[row].tolist()) for row in first_address],
            [self._paths.path(*(int(cells[name][row]) for name in names)) for row in first_path],
            src=address[:count],
            dst=address[count:],
            protocol=_field(about, 8, 0xFF),
            src_port=_field(about, 32, 0xFFFF),
            dst_port=_field(about, 16, 0xFFFF),
            path=path,
            received_ns=_signed(cells["path_ns"]),
            rate_bps=[UNKNOWN if rate is None else rate for rate in rates[0]],
            measured_bytes=rates[1],
            is_young=rates[2],
            gap_mean_ns=self._gap_means(),
            gap_variation=self._gap_shares(),
        )

    def _gap_means(self) -> Integers:
        """Return the mean gap between each flow's packets, UNKNOWN before there were any."""
        means = (self._cells["gap_mean"] >> MEAN_BITS).astype(np.int64)
        return np.where(self._cells["gap_count"] != 0, means, UNKNOWN)

    def _gap_shares(self) -> NDArray[np.float64]:
        """Return the variance of each flow's gaps as a share of the mean's square, 1 at most."""
        shares: NDArray[np.float64] = np.minimum(self._cells["gap_variation"], CHANCE) / CHANCE
        return shares

    def _rates(self) -> list[tuple[int | None, int, bool]]:
        """Return each flow's rate in bit/s as `collectors.statistics.rate` has it, None where no packet was counted.

        Beside it the bytes, and whether the flow is young.
        """
        cells, window = self._cells, self._rate
        sent_ns, heard_ns = cells["rate_ns"].astype(np.int64), cells["heard_ns"].astype(np.int64)
        now_ns = sent_ns + np.maximum(self._now_ns - heard_ns, 0)
        newest, slots = (sent_ns // window.slot_ns)[:, None], np.arange(RATE_SLOTS)[None, :]
        numbers = newest - (newest - slots) % RATE_SLOTS
        inside = numbers >= (now_ns // window.slot_ns - RATE_SLOTS + 1)[:, None]
        sums = np.where(inside, cells["rate_bytes"], 0).sum(axis=1, dtype=np.int64)
        columns = (column.tolist() for column in (sums, cells["first_ns"], now_ns))
        return [self._rate_of(*row) for row in zip(*columns, strict=True)]

    def _rate_of(self, nbytes: int, first_ns: int, now_ns: int) -> tuple[int | None, int, bool]:
        if first_ns == NONE64:
            return None, nbytes, False
        rate_bps = self._rate.rate_bps(nbytes * self._sample_every, first_ns, now_ns)
        return rate_bps, nbytes, first_ns > self._rate.begins_ns(now_ns)


def signals_of(table: SignalTable, cells: NDArray[np.void]) -> NetworkSignals:
    """Return what tells that the network has changed; `cells` are those of flows that have grown."""
    addresses: dict[tuple[int, int, int], IPv4Address | IPv6Address] = {}
    columns = (cells[name].tolist() for name in ("key", "mean", "known"))
    return NetworkSignals(
        queue_frames=table.queue - 1 if table.queue else None,
        queue_reported=bool(table.queue_reported),
        queue_full=bool(table.queue_full),
        grown={_flow(words, addresses): more_hz(mean, known) for words, mean, known in zip(*columns, strict=True)},
        unlisted=table.unlisted,
    )


def _flow(words: Sequence[int], known: dict[tuple[int, int, int], IPv4Address | IPv6Address]) -> FlowKey:
    source_high, source_low, target_high, target_low, about = words
    source = _address(about & 0xF, source_high, source_low, known)
    target = _address(about & 0xF, target_high, target_low, known)
    return FlowKey(source, target, about >> 8 & 0xFF, about >> 32 & 0xFFFF, about >> 16 & 0xFFFF)


def _address(
    version: int, high: int, low: int, known: dict[tuple[int, int, int], IPv4Address | IPv6Address]
) -> IPv4Address | IPv6Address:
    found = known.get((version, high, low))
    if found is None:
        found = known[version, high, low] = _address_of(version, high, low)
    return found


def _address_of(version: int, high: int, low: int) -> IPv4Address | IPv6Address:
    kind: type[IPv4Address | IPv6Address] = IPv4Address if version == 4 else IPv6Address
    return kind(high << 64 | low)


def _field(words: NDArray[np.uint64], shift: int, mask: int) -> Integers:
    return (words >> shift & mask).astype(np.int64)


def _distinct(*words: NDArray[np.unsignedinteger[Any]]) -> tuple[Integers, Integers]:
    """Return where each distinct row of columns stands first, and each row's place among the distinct ones."""
    places: Integers = np.zeros(len(words[0]), np.int64)
    for word in words:
        values, own = np.unique(word, return_inverse=True)
        # Both are less than there are rows, so that the product holds.
        _, first, places = np.unique(places * len(values) + own, return_index=True, return_inverse=True)
    return first, places
