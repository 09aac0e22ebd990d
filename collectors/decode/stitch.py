"""Stitching of hop records into samples of directed links and whole paths, whatever the mode of the reports.

A stack is a path. Single-hop reports wait for one another: by index, where our domain's hop count gives it, else by
adjacency. A congested queue's report covers only the queue. This module does not determine where hops wait: in native
memory (`collectors.native.fallback`), together with natively decoded ones, or in `collectors.reference.stitch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from collectors.clocks.values import LinkCorrection
from collectors.counters import Count, Counters
from collectors.decode.samples import Fate, LinkSample, Sampler
from collectors.settings import StateSettings
from collectors.values import FlowKey, HopRecord, RecordKind
from dataplane.topology.values import LinkKey, Topology

HOPS_EACH: Final = 16
"""Average number of hops per packet or flow that there is room for."""


@dataclass(frozen=True, slots=True)
class SeenPath:
    """The whole path of one packet: links from its source host (where the topology has it) to its destination.

    `delay_ns` runs from its arrival at the first switch to the end of its path, None where a hop reports too little or
    spoke of another packet; `hops` are the records that the path was found by, in travelling order.
    """

    flow: FlowKey
    switches: tuple[str, ...]
    links: tuple[LinkKey, ...]
    source_time_ns: int | None
    received_ns: int
    delay_ns: int | None = None
    hops: tuple[HopRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Stitched:
    """Result of stitching a batch of records."""

    samples: list[LinkSample]
    paths: list[SeenPath]
    fates: list[Fate]


class Stitcher(ABC):
    """Joins the hops of one packet, from one report or from one each, in any order."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._topology = topology
        self._settings = settings
        self._counters = counters
        self._sampler = Sampler(topology, settings, counters)

    def correct(self, corrections: Mapping[LinkKey, LinkCorrection]) -> None:
        """Use these corrections for the differences of two clocks' stamps from now on."""
        self._sampler.corrections = corrections

    def take_fates(self) -> list[Fate]:
        """Return the fates that `stitch` has not returned, since the last call."""
        return []

    def reporting(self) -> list[str]:
        """Return the switches with reported drops that are known only here."""
        return []

    def stitch(self, records: Sequence[HopRecord]) -> Stitched:
        """Return samples and paths; single hops wait, bounded in number and time, for their packet's others."""
        out = Stitched([], [], [])
        for hops in _reports(records):
            match hops[0].kind:
                case RecordKind.STACK:
                    self._take_stack(hops, out)
                case RecordKind.HOP_BY_HOP:
                    self._take_single(hops[0], out)
                case RecordKind.INTERMEDIATE:
                    self._note_split(hops[0].flow)
                    self._take_part(hops, out)
                case RecordKind.MX | RecordKind.XD:
                    self._take_part(hops, out)
                case RecordKind.QUEUE:
                    append(out, self._sampler.figures(hops[0]))
        return out

    def _take_stack(self, hops: list[HopRecord], out: Stitched) -> None:
        if self._is_split(hops[0].flow) and self._sampler.starts_midway(hops[0]):
            self._take_part(hops, out)
            return
        for hop, following in pairwise(hops):
            # A hop may be missing in between: then the next one is not at this link's head.
            append(out, self._sampler.sample(hop, following if following.hop_index == hop.hop_index + 1 else None))
        append(out, self._sampler.sample(hops[-1], None))
        if hops[0].hop_index == 0 and len(hops) == hops[-1].hop_count:
            self._path(hops, out)

    @abstractmethod
    def _take_part(self, hops: list[HopRecord], out: Stitched) -> None:
        """Join successive hops that adjacency puts in order."""

    @abstractmethod
    def _take_single(self, record: HopRecord, out: Stitched) -> None:
        """Join a hop that gives its index."""

    @abstractmethod
    def _note_split(self, flow: FlowKey) -> None:
        """Remember that stacks of this flow come in parts."""

    @abstractmethod
    def _is_split(self, flow: FlowKey) -> bool:
        """Return whether stacks of this flow come in parts."""

    def _path(self, hops: list[HopRecord], out: Stitched) -> None:
        switches = self._topology.switch_by_id
        names = [switches[hop.node_id].name for hop in hops if hop.node_id in switches]
        if len(names) != len(hops):
            return
        source = self._topology.host_by_address.get(hops[0].flow.src)
        destination = self._topology.host_by_address.get(hops[0].flow.dst)
        nodes = [*([source.name] if source else []), *names, *([destination.name] if destination else [])]
        links = tuple(LinkKey(tail, head) for tail, head in pairwise(nodes))
        if any(link not in self._topology.directed_links for link in links):
            self._counters[Count.NOT_ADJACENT] += 1
            return
        out.paths.append(
            SeenPath(
                flow=hops[0].flow,
                switches=tuple(names),
                links=links,
                source_time_ns=hops[0].ingress_timestamp_ns,
                received_ns=max(hop.received_ns for hop in hops),
                delay_ns=self._sampler.whole_delay(hops),
                hops=tuple(hops),
            )
        )


def _reports(records: Sequence[HopRecord]) -> Iterator[list[HopRecord]]:
    """Yield the hops of each individual report: of one packet and group, and with growing indices."""
    hops: list[HopRecord] = []
    for record in records:
        if hops and (_packet_of(record) != _packet_of(hops[-1]) or record.hop_index <= hops[-1].hop_index):
            yield hops
            hops = []
        hops.append(record)
    if hops:
        yield hops


def _packet_of(record: HopRecord) -> tuple[FlowKey, int, int, int, RecordKind]:
    return record.flow, record.packet_id, record.reporter_id, record.sequence, record.kind


def append(out: Stitched, sample: LinkSample | None) -> None:
    """Add a sample, if there is one."""
    if sample is not None:
        out.samples.append(sample)
