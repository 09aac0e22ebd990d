"""The service simple_switch: mirroring sessions, lengths and rates of queues, time."""

from __future__ import annotations

import time

from dataplane.switch.runtime_api.calls import LOGGER, UnsupportedCallError
from dataplane.switch.runtime_api.multicast import publish_session
from dataplane.switch.runtime_api.records import MirroringConfig, MirroringRefusal
from dataplane.switch.runtime_api.runtime import Runtime

_SESSIONS = 1 << 15
_PORTS = 512
_NOT_FOUND = 1


class SimpleSwitchMethods:
    """The methods of `simple_switch`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def mirroring_session_add(self, session: int, config: MirroringConfig) -> None:
        """Create a mirroring session, or change its destination."""
        if not 0 <= session < _SESSIONS:
            raise MirroringRefusal(_NOT_FOUND)
        if config.port is not None and not 0 <= config.port < _PORTS:
            raise UnsupportedCallError(f"mirroring session {session}: there is no port {config.port}")
        with self.runtime.books() as books:
            books.mirrored_groups.pop(session, None)
            books.mirrored_ports.pop(session, None)
            if config.mgid is not None:
                books.mirrored_groups[session] = config.mgid
            if config.port is not None:
                books.mirrored_ports[session] = config.port
            publish_session(books, session)

    def mirroring_session_delete(self, session: int) -> None:
        """Remove a mirroring session."""
        with self.runtime.books() as books:
            if session not in books.state.clone_sessions:
                raise MirroringRefusal(_NOT_FOUND)
            del books.state.clone_sessions[session]
            books.state.replication_notes.pop(("clone session", session), None)
            books.mirrored_groups.pop(session, None)
            books.mirrored_ports.pop(session, None)

    def mirroring_session_get(self, session: int) -> MirroringConfig:
        """Return a mirroring session's destination; for one made by P4Runtime, its first port."""
        with self.runtime.books() as books:
            config = books.state.clone_sessions.get(session)
            if config is None:
                raise MirroringRefusal(_NOT_FOUND)
            if session in books.mirrored_groups or session in books.mirrored_ports:
                return MirroringConfig(books.mirrored_ports.get(session), books.mirrored_groups.get(session))
            return MirroringConfig(config.replicas[0].port if config.replicas else None)

    def mirroring_mapping_add(self, session: int, port: int) -> int:
        """Create a mirroring session to a port."""
        self.mirroring_session_add(session, MirroringConfig(port))
        return 0

    def mirroring_mapping_delete(self, session: int) -> int:
        """Remove a mirroring session; return -1 if there is none."""
        try:
            self.mirroring_session_delete(session)
        except MirroringRefusal:
            return -1
        return 0

    def mirroring_mapping_get_egress_port(self, session: int) -> int:
        """Return a mirroring session's port, -1 if there is none."""
        try:
            port = self.mirroring_session_get(session).port
        except MirroringRefusal:
            return -1
        return -1 if port is None else port

    def set_egress_priority_queue_depth(self, port: int, priority: int, frames: int) -> int:
        """Return -1: a port's eight queues have the same length."""
        return _refused(f"set_queue_depth {frames} {port} {priority}: the eight queues of a port share one length")

    def set_egress_queue_depth(self, port: int, frames: int) -> int:
        """Set the capacity, in frames, of each of a port's queues."""
        if not self._may(port, frames, "set_queue_depth"):
            return -1
        with self.runtime.control.paused():
            self.runtime.control.traffic.set_queue_frames(port, frames)
        return 0

    def set_all_egress_queue_depths(self, frames: int) -> int:
        """Set the capacity, in frames, of each queue."""
        return min(
            (self.set_egress_queue_depth(port, frames) for port in self.runtime.control.port_states()), default=0
        )

    def set_egress_priority_queue_rate(self, port: int, priority: int, packets_per_s: int) -> int:
        """Return -1: a port's queues share its rate."""
        return _refused(f"set_queue_rate {packets_per_s} {port} {priority}: the queues of a port share its rate")

    def set_egress_queue_rate(self, port: int, packets_per_s: int) -> int:
        """Set the maximum packets per second that leave a port's queues; 0: limited only by the port's rate."""
        if not self._may(port, packets_per_s + 1, "set_queue_rate"):
            return -1
        with self.runtime.control.paused():
            self.runtime.control.traffic.set_packet_rate(port, packets_per_s)
        return 0

    def set_all_egress_queue_rates(self, packets_per_s: int) -> int:
        """Set the maximum packets per second that leave each port's queues."""
        ports = self.runtime.control.port_states()
        return min((self.set_egress_queue_rate(port, packets_per_s) for port in ports), default=0)

    def get_time_elapsed_us(self) -> int:
        """Return the microseconds since the switch began to listen."""
        return (self.runtime.control.now_ns() - self.runtime.started_ns) // 1_000

    def get_time_since_epoch_us(self) -> int:
        """Return the microseconds since 1970."""
        return time.time_ns() // 1_000

    def _may(self, port: int, number: int, call: str) -> bool:
        if port not in self.runtime.control.port_states():
            _refused(f"{call}: there is no port {port}")
        elif not 0 < number < 1 << 31:
            _refused(f"{call}: port {port}: the number is out of range")
        else:
            return True
        return False


def _refused(line: str) -> int:
    """Log why a call has no effect, and return bmv2's failure value: these calls have no error."""
    LOGGER.warning("%s", line)
    return -1
