"""TCP ports of the daemons' metrics: the documented ones, or a hundred further on where one is taken."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

from msgspec.structs import replace

from controller.apps.up.settings import PageSection, UpSettings
from controller.workloads.centres.settings import MetricsSettings as CentreMetrics
from dataplane.rpc.addresses import target_of

SECTIONS: Final = ("fabric", "collector", "paths", "controller", "api", "scheduler", "placement", "balance")
"""Sections with metrics, besides those of centres; each has its daemon's documented port by default."""
CENTRE_PORTS: Final = (CentreMetrics().port, *range(9480, 9500))
"""Ports of the centres' agents, in the order of the settings."""
_PAGE: Final = "page"
_NO_PORT: Final = -1
_STEP: Final = 100
_LAST: Final = 65_535


class Reservations:
    """Metrics ports of this process; no other `millrace up` takes them meanwhile.

    A port is free between its choice and the daemon's start, and at each restart. So it is marked by an abstract UNIX
    socket (unix(7)), which like TCP ports belongs to a network namespace; nobody listens there.
    """

    def __init__(self) -> None:
        self._marks = list[socket.socket]()

    def take(self, address: str, port: int) -> bool:
        """Return whether a port is free, and reserve it."""
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            mark.bind(f"\0millrace-metrics-{port}")
        except OSError:
            mark.close()
            return False
        if not is_free(address, port):
            mark.close()
            return False
        self._marks.append(mark)
        return True

    def close(self) -> None:
        """Release all."""
        for mark in self._marks:
            mark.close()


class MetricsPorts:
    """Chooses the daemons' metrics ports, and keeps a daemon's as long as this lives.

    `take(address, port)` reserves a port, or returns False.
    """

    def __init__(self, take: Callable[[str, int], bool]) -> None:
        self._take, self._chosen = take, dict[str, int]()

    def choose(self, settings: UpSettings) -> tuple[UpSettings, tuple[str, ...]]:
        """Return settings with a port for each daemon, and a line for each documented port that is taken.

        Only documented ports give way to others; one that the settings choose stays.
        """
        sections = {name: section for name in SECTIONS if (section := getattr(settings, name)) is not None}
        centres = {f"centre-{name}": section for name, section in settings.centres.items()}
        documented = {name: _documented(section) for name, section in sections.items()}
        documented |= dict.fromkeys(centres, CENTRE_PORTS)
        everything: dict[str, Any] = sections | centres
        stated = {_port(section) for name, section in everything.items() if _port(section) != documented[name][0]}
        told = list[str]()

        def with_port(name: str) -> Any:  # noqa: ANN401 - a section of any daemon
            section, ports = everything[name], documented[name]
            if _port(section) != ports[0]:
                return section
            if name not in self._chosen:
                self._chosen[name] = self._first_free(section.metrics.address, ports, stated)
                if self._chosen[name] not in ports:
                    told.append(f"{name}: metrics at port {self._chosen[name]}, as {_span(ports)} taken")
            return replace(section, metrics=replace(section.metrics, port=self._chosen[name]))

        changed = {name: with_port(name) for name in sections}
        page = settings.api.page
        if page is not None and page.port == PageSection().port:
            if _PAGE not in self._chosen:
                self._chosen[_PAGE] = self._first_free(page.address, (page.port,), stated)
                if self._chosen[_PAGE] != page.port:
                    told.append(f"page: at port {self._chosen[_PAGE]}, as {page.port} is taken")
            changed["api"] = replace(changed["api"], page=replace(page, port=self._chosen[_PAGE]))
        agents = {name: with_port(f"centre-{name}") for name in settings.centres}
        return replace(settings, **changed, centres=agents), tuple(told)

    def _first_free(self, address: str, ports: Sequence[int], stated: set[int]) -> int:
        """Return a free port; the first one, which its daemon will report, if there is none."""
        for further in range(0, _LAST, _STEP):
            for port in ports:
                if port + further <= _LAST and port + further not in stated and self._take(address, port + further):
                    return port + further
        return ports[0]


def is_free(address: str, port: int) -> bool:
    """Return whether a server could listen at a port now; True for an address that its daemon will refuse."""
    try:
        family, kind, _, _, where = socket.getaddrinfo(
            target_of(address), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError:
        return True
    with closing(socket.socket(family, kind)) as probe:
        # As the server sets it, or connections of an earlier one would count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError:
            return False
    return True


def _documented(section: Any) -> tuple[int, ...]:  # noqa: ANN401 - a section of any daemon
    return (_NO_PORT,) if section.metrics is None else (type(section.metrics)().port,)


def _port(section: Any) -> int:  # noqa: ANN401 - a section of any daemon
    return 0 if section.metrics is None else section.metrics.port


def _span(ports: Sequence[int]) -> str:
    return f"{ports[0]} is" if len(ports) == 1 else f"{ports[0]} and {ports[1]} to {ports[-1]} are"
