"""Congestion windows: Reno and CUBIC as values; each step is a function of the last one and of the feedback."""

from dataplane.fabric.virtual.tcp.congestion.cubic import Cubic
from dataplane.fabric.virtual.tcp.congestion.reno import Reno
from dataplane.fabric.virtual.tcp.congestion.values import Acked, CongestionControl

__all__ = ["Acked", "CongestionControl", "Cubic", "Reno"]
