"""The collector's counters by name: everything that came in, and everything that went no further with its reason."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Count(StrEnum):
    """Names of the counters; reports that did not decode are counted as `malformed <header>` besides."""

    REPORTS = "reports"
    """Report packets received, whatever became of them."""

    UNKNOWN_REPORTER = "unknown reporter"
    """Report packets of a node id that the topology lacks: neither accounted nor read."""

    WRONG_SOURCE = "wrong source"
    """Report packets that did not come from the report source of the switch that they name: neither accounted nor
    read."""

    MALFORMED = "malformed"
    """Report packets dropped because some of their bytes violate the specification."""

    REPEATED = "repeated"
    """Report packets dropped because they had come before: the same number, the same content."""

    CONTESTED = "contested"
    """Report packets whose sequence number had come before with other content: measured, but one of the two is not the
    switch's."""

    RECORDS = "records"
    """Hop records made."""

    RECORDS_WITHHELD = "records withheld"
    """Reports whose records reached no subscriber: more came than settings allow, or than were fetched in time."""

    RECORDS_NOT_SAMPLED = "records not sampled"
    """Reports outside the sample of records that subscribers asked for."""

    RECORDS_SHED = "records shed"
    """Reports whose records reached no subscriber because the collector was behind: reports had waited for too long."""

    DROPS_WITHHELD = "drops withheld"
    """Drops that count in the losses, but whose records reached no subscriber: more came than settings allow."""

    NOT_READ = "not read"
    """Reports of which only the number was accounted: more came that only Python can read than settings allow."""

    NO_FLOW = "no flow"
    """Individual reports without a truncated IP packet: nothing to attribute them to."""

    RESERVED_TYPE = "reserved type"
    """Individual reports of a type that the specification keeps for later: passed over by their length."""

    ABOUT_REPORTS = "about reports"
    """Individual reports about report packets: there should be no INT on those."""

    PACKET_DROPPED = "packet dropped"
    """Individual reports that a switch dropped the packet; the hops before it may still be reported."""

    DROPS_CAPPED = "drops capped"
    """Dropped packets beyond the maximum of one report packet: neither counted as loss nor recorded."""

    ITEMS_REPORTED = "items reported"
    """Individual reports that a switch has added up an item of a job."""

    JOBS_FORGOTTEN = "jobs forgotten"
    """Jobs in switches that were evicted before they expired."""

    NO_NODE_ID = "no node id"
    """Hops without a node id: no record."""

    UNKNOWN_NODE = "unknown node"
    """Hops on a stack with a node id that the topology lacks: not in the network's state, no record for subscribers."""

    UNKNOWN_PORT = "unknown port"
    """Records whose egress port has no link in the topology: not in the network's state."""

    NOT_ADJACENT = "not adjacent"
    """Pairs of successive hops that the topology does not link: no link delay from their stamps."""

    IMPLAUSIBLE_STAMPS = "implausible stamps"
    """Pairs of hops whose time stamps are reversed or too far apart: the hop latency is used instead."""

    LATE_SAMPLES = "late samples"
    """Samples older than the window behind their node's newest: not in the network's state."""

    INCOMPLETE_PACKETS = "incomplete packets"
    """Packets given up before every hop had reported, or that another one looked like."""

    FLOWS_FORGOTTEN = "flows forgotten"
    """Flows that were evicted before they expired."""

    FLOWS_NOT_ADMITTED = "flows not admitted"
    """Packets of flows not among the heaviest (`max_flows`): they count for links, not for a flow's rate or path."""

    ROUTES_FULL = "routes full"
    """Packets whose path over the switches did not fit into the table: their flow's path is not kept."""

    REPORTERS_FORGOTTEN = "reporters forgotten"
    """Sequence accounts that made room for others."""

    KERNEL_QUEUE_FULL = "kernel queue full"
    """Report packets lost because the collector's socket was full (SO_MEMINFO), or the device's queues were."""

    RECEIVE_MALFORMED = "receive malformed"
    """Frames to the reports' UDP port, polled from a device, that are cut, fragments, or have a wrong checksum."""

    SFLOW_DATAGRAMS = "sflow datagrams"
    """sFlow datagrams received, whatever became of them."""

    SFLOW_MALFORMED = "sflow malformed"
    """sFlow datagrams that are cut, or not of version 5."""

    SFLOW_UNKNOWN = "sflow unknown agent"
    """sFlow datagrams of an agent that the settings do not name."""

    SFLOW_WRONG_SOURCE = "sflow wrong source"
    """sFlow datagrams that did not come from their agent's address."""

    SFLOW_SKIPPED = "sflow samples skipped"
    """Samples of formats that are not read."""

    SFLOW_NO_LINK = "sflow no link"
    """Counters of interfaces without a cable in the topology."""

    SFLOW_RESTARTS = "sflow restarts"
    """Counters that do not continue those before, such as the first ones: the next give a rate."""

    SFLOW_QUEUE_FULL = "sflow queue full"
    """sFlow datagrams lost because the socket was full."""

    OTLP_REQUESTS = "otlp requests"
    """Requests of OTLP exporters, whatever became of them."""

    OTLP_UNKNOWN = "otlp unknown device"
    """Resources in them that are no device of the settings, or several."""

    OTLP_SKIPPED = "otlp points skipped"
    """Points of counters without a usable value, or older than the last."""

    OTLP_NO_LINK = "otlp no link"
    """Counters of interfaces without a cable in the topology."""

    OTLP_RESTARTS = "otlp restarts"
    """Counters that do not continue those before, such as the first ones: the next give a rate."""

    STAMP_PROBES = "stamp probes"
    """STAMP probes sent to reflectors."""

    STAMP_UNANSWERED = "stamp unanswered"
    """STAMP probes without an answer in time."""

    STAMP_LATE = "stamp late"
    """STAMP packets that answer no probe that is out: late, repeated or forged."""

    STAMP_MALFORMED = "stamp malformed"
    """STAMP packets that are cut, or not signed with the session's key."""

    FEED_BYTES = "feed bytes"
    """Bytes of snapshots and changes that the feed sent to subscribers."""

    FEED_BATCHES_DROPPED = "feed batches dropped"
    """Batches of records that a slow subscriber of the feed did not get."""

    EVENTS = "events"
    """Events that rules raised or cleared."""

    NOT_JUDGED = "not judged"
    """Observations that no rule judged because too many subjects were remembered."""

    HISTORY_FAILED = "history failed"
    """Intervals of which some rows could not be written to the history."""

    HISTORY_UPLOADED = "history uploaded"
    """Closed files of the history that were written to the object store."""

    OBJECT_STORE_FAILED = "object store failed"
    """Attempts to write to the object store, or to compact it, that failed; the files stay until one succeeds."""


Counters = Counter[str]
