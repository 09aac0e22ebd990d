"""gNMI on a switch: its ports and hellos as an OpenConfig tree, read, set and subscribed."""

from __future__ import annotations

from dataplane.switch.gnmi.core import GnmiCore
from dataplane.switch.gnmi.errors import GnmiError
from dataplane.switch.gnmi.service import GnmiService

__all__ = ["GnmiCore", "GnmiError", "GnmiService"]
