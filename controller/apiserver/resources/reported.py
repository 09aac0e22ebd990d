"""Strategy of kinds that a local agent reports, under a lease: nodes and centres."""

from __future__ import annotations

from msgspec.structs import replace

from controller.apiserver.resources.base import R
from controller.apiserver.resources.kind import Server, Strategy
from controller.common.errors import StaleError
from dataplane.rpc.access import Principal


class ReportedStrategy(Strategy[R]):
    """Stamps reports with the server's time, and refuses those of a second agent while the first one's lease runs.

    The status has `heartbeat_ns`, `signed_off`, and the reporting agent's state folder in the field `reporter`.
    """

    def __init__(self, reporter: str, words: str) -> None:
        """`words` name the reporter in refusals, with its article."""
        self._reporter, self._words = reporter, words

    def prepare(self, new: R, principal: Principal, server: Server) -> R:
        """Stamp the first report, if the new resource has one."""
        return new if new.status.heartbeat_ns is None else _stamped(new, server)

    def prepare_status(self, current: R, wanted: R, principal: Principal, server: Server) -> R:
        """Stamp a report; a status that repeats the last heartbeat is not one."""
        self._check_reporter(current, wanted, server)
        old = current.status.heartbeat_ns
        return wanted if old is not None and wanted.status.heartbeat_ns == old else _stamped(wanted, server)

    def after_write(self, written: R, server: Server) -> None:
        """Begin the lease of a report."""
        server.begin_lease(written)

    def _check_reporter(self, current: R, wanted: R, server: Server) -> None:
        status, folder = current.status, getattr(current.status, self._reporter)
        if status.signed_off or status.heartbeat_ns is None or folder in ("", getattr(wanted.status, self._reporter)):
            return
        if not server.is_lease_over(current):
            kind, name = type(current).__name__, current.metadata.name
            raise StaleError(f"{kind} {name} has {self._words}, of state folder {folder}, whose lease has not expired")


def _stamped(resource: R, server: Server) -> R:
    """Return a report with the server's time: the clock of a node or centre may be wrong."""
    return replace(resource, status=replace(resource.status, heartbeat_ns=server.now_ns()))
