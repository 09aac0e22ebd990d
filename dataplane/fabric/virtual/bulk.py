"""Bulk transfers between virtual hosts over TCP, measured where they arrive."""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import FabricError
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.tcp import Connection, TcpSettings, TcpStatistics

BULK_PORT: Final = 5001
KEEP_ARRIVALS: Final = 1 << 20
"""Number of arrivals that a flow remembers; older ones leave the measurements but not the totals."""
_PATTERN_BYTES: Final = 1 << 16
_PATTERN: Final = random.Random(0).randbytes(_PATTERN_BYTES) * 2


class BulkFlow:
    """Sends `size_bytes`, or as much as possible until `stop_ns`, between two hosts over a dedicated connection.

    Each byte received is compared with the one sent; a difference ends the run with FabricError. Raises FabricError for
    unknown hosts, and for a flow without size and end.
    """

    def __init__(
        self,
        fabric: VirtualFabric,
        src: str,
        dst: str,
        *,
        size_bytes: int | None = None,
        start_ns: int | None = None,
        stop_ns: int | None = None,
        settings: TcpSettings | None = None,
        port: int = BULK_PORT,
        ip_version: int = 4,
    ) -> None:
        if size_bytes is None and stop_ns is None:
            raise FabricError(f"a flow from {src} to {dst} has neither a size nor an end")
        self._fabric, self._src, self._settings = fabric, src, settings or TcpSettings()
        node = fabric.host(dst).node
        target = node.ipv4 if ip_version == 4 else node.ipv6
        if target is None:
            raise FabricError(f"{dst} has no IPv{ip_version} address")
        self._target, self._port = target, port
        self._left, self._written = size_bytes, 0
        self._connection: Connection | None = None
        self._arrived_ns, self._arrived_bytes = array("q"), array("Q")
        self.received_bytes = 0
        self.finished_ns: int | None = None
        """Time at which the receiver had everything."""
        self._listener = fabric.host(dst).tcp.listen(port, self._accept, self._settings)
        fabric.call_at(max(fabric.now_ns, start_ns or 0), self._begin)
        if stop_ns is not None:
            fabric.call_at(stop_ns, self._stop)

    @property
    def connection(self) -> Connection:
        """The sender's end of the connection; raises FabricError before the flow has started."""
        if self._connection is None:
            raise FabricError(f"the flow from {self._src} has not begun")
        return self._connection

    @property
    def statistics(self) -> TcpStatistics:
        """The sender's counts and samples; raises FabricError before the flow has started."""
        return self.connection.statistics

    def goodput_bps(self, start_ns: int, end_ns: int) -> float:
        """Return the rate at which the stream arrived in [start_ns, end_ns): application data, without headers."""
        if end_ns <= start_ns:
            raise FabricError(f"nothing can be measured from {start_ns} ns to {end_ns} ns")
        return (self._total(end_ns) - self._total(start_ns)) * 8 * NS_PER_S / (end_ns - start_ns)

    def windows(self, start_ns: int, end_ns: int, window_ns: int) -> Iterator[tuple[int, float]]:
        """Yield the start and the goodput of each whole window from `start_ns` that ends by `end_ns`."""
        for begin_ns in range(start_ns, end_ns - window_ns + 1, window_ns):
            yield begin_ns, self.goodput_bps(begin_ns, begin_ns + window_ns)

    def _total(self, time_ns: int) -> int:
        """Return the bytes that had arrived before a time."""
        index = bisect_left(self._arrived_ns, time_ns)
        return self._arrived_bytes[index - 1] if index else 0

    def _begin(self) -> None:
        connection = self._fabric.host(self._src).tcp.connect(self._target, self._port, self._settings)
        self._connection = connection
        connection.on_established = connection.on_writable = self._fill

    def _fill(self) -> None:
        """Write until the buffer is full or nothing is left."""
        while self._left is None or self._left:
            offset = self._written % _PATTERN_BYTES
            length = _PATTERN_BYTES if self._left is None else min(_PATTERN_BYTES, self._left)
            taken = self.connection.write(_PATTERN[offset : offset + length])
            self._written += taken
            self._left = None if self._left is None else self._left - taken
            if taken < length:
                return
        self.connection.close()

    def _stop(self) -> None:
        """Abandon what has not arrived: the measurement is over."""
        if self._connection is not None:
            self._connection.abort()

    def _accept(self, connection: Connection) -> None:
        self._listener.close()
        connection.on_data = self._take
        connection.on_end = lambda: self._end(connection)

    def _take(self, data: bytes) -> None:
        offset = self.received_bytes % _PATTERN_BYTES
        while data:
            part = data[:_PATTERN_BYTES]
            if part != _PATTERN[offset : offset + len(part)]:
                raise FabricError(f"the flow from {self._src}: other bytes arrived than were sent")
            self.received_bytes += len(part)
            offset = self.received_bytes % _PATTERN_BYTES
            data = data[_PATTERN_BYTES:]
        for column, value in ((self._arrived_ns, self._fabric.now_ns), (self._arrived_bytes, self.received_bytes)):
            column.append(value)
            if len(column) > KEEP_ARRIVALS:
                del column[: KEEP_ARRIVALS // 2]

    def _end(self, connection: Connection) -> None:
        self.finished_ns = self._fabric.now_ns
        connection.close()
