"""A switch's counters as metric families; the number of series is bounded by its ports and drop names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from dataplane.errors import SwitchError
from dataplane.metrics_server import MetricsServer
from dataplane.switch.counters import SwitchFigures
from dataplane.switch.drivers import SwitchDriver

ADDRESS = "127.0.0.1"
_PREFIX = "millrace_switch"


def port_families(switches: Mapping[str | None, SwitchFigures]) -> Iterator[Metric]:
    """Yield the families of ports and drops, labelled by the switch's name; name None: without that label."""
    named = [] if None in switches else ["switch"]
    labels = [*named, "port", "device"]
    figures = {
        name: CounterMetricFamily(f"{_PREFIX}_port_{name}", about, labels=labels)
        for name, about in (
            ("received_frames", "Frames received."),
            ("received_bytes", "Bytes received."),
            ("sent_frames", "Frames sent."),
            ("sent_bytes", "Bytes sent."),
        )
    }
    queued = GaugeMetricFamily(f"{_PREFIX}_port_queued_frames", "Frames waiting.", labels=labels)
    up = GaugeMetricFamily(f"{_PREFIX}_port_up", "1 while the port receives and sends frames.", labels=labels)
    joins = GaugeMetricFamily(
        f"{_PREFIX}_port_joins_segments",
        "1 while consecutive TCP segments leave as one packet, as last observed.",
        labels=labels,
    )
    drops = CounterMetricFamily(
        f"{_PREFIX}_drops", "Frames dropped, by port where known.", labels=[*named, "port", "reason"]
    )
    for name, switch in switches.items():
        of_switch = [] if name is None else [name]
        for number, port in switch.ports.items():
            state = switch.port_states.get(number)
            of_port = [*of_switch, str(number), "cpu" if state is None else state.device]
            values = (port.rx_frames, port.rx_bytes, port.tx_frames, port.tx_bytes)
            for family, value in zip(figures.values(), values, strict=True):
                family.add_metric(of_port, value)
            queued.add_metric(of_port, port.queued_frames)
            if state is not None:
                up.add_metric(of_port, state.is_open)
            if state is not None and state.not_joined is not None:
                joins.add_metric(of_port, state.not_joined == "")
            for reason, count in port.drops.items():
                drops.add_metric([*of_switch, str(number), reason], count)
        for reason, count in switch.drops.items():
            drops.add_metric([*of_switch, "", reason], count)
    yield from (*figures.values(), queued, up, joins, drops)


class SwitchCollector:
    """Prometheus collector of a switch, callable from any thread; `read_drops` are the control plane's drops."""

    def __init__(self, driver: SwitchDriver, read_drops: Callable[[], Mapping[str, int]]) -> None:
        self._driver, self._read_drops = driver, read_drops

    def collect(self) -> Iterator[Metric]:
        """Yield the current families."""
        control = self._driver.control
        counters = self._driver.counters()
        drops = {**counters.drops, **self._read_drops()}
        yield from port_families({None: SwitchFigures(counters.ports, drops, control.port_states())})
        program = control.program
        told = {"device_id": str(control.device_id), "program": "" if program is None else program.name}
        yield InfoMetricFamily(_PREFIX, "What runs.", value=told)


def serve(port: int, driver: SwitchDriver, read_drops: Callable[[], Mapping[str, int]], stack: ExitStack) -> str:
    """Serve a switch's metrics on this machine until the stack ends; return the address. Raises SwitchError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SwitchCollector(driver, read_drops))
    ProcessCollector(registry=registry)
    try:
        server = stack.enter_context(MetricsServer(registry, ADDRESS, port))
    except OSError as error:
        raise SwitchError(f"--metrics-port: {ADDRESS}:{port}: {error.strerror or error}") from error
    return f"http://{ADDRESS}:{server.port}/metrics"
