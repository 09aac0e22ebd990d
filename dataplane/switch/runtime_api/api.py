"""The runtime API of one switch as a context manager."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dataplane.switch.runtime_api.control import RuntimeControl
from dataplane.switch.runtime_api.management import StandardMethods
from dataplane.switch.runtime_api.multicast import MulticastMethods
from dataplane.switch.runtime_api.runtime import Runtime
from dataplane.switch.runtime_api.server import ApiLimits, ApiServer
from dataplane.switch.runtime_api.simple_switch import SimpleSwitchMethods


@contextmanager
def serve(control: RuntimeControl, port: int, limits: ApiLimits | None = None) -> Iterator[int]:
    """Serve the API on a loopback port, 0 for a free one; yield the port. Raises SwitchError if it is taken."""
    runtime = Runtime(control)
    multicast = MulticastMethods(runtime)
    handlers = {
        "standard": StandardMethods(runtime),
        "simple_pre": multicast,
        "simple_pre_lag": multicast,
        "simple_switch": SimpleSwitchMethods(runtime),
    }
    server = ApiServer(handlers, port, limits)
    runtime.port = server.port
    with server:
        yield server.port
