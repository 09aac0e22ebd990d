"""How much may be under way: Reno and CUBIC as values, each step a function of the last and of what was heard."""

from dataplane.fabric.virtual.tcp.congestion.cubic import Cubic
from dataplane.fabric.virtual.tcp.congestion.reno import Reno
from dataplane.fabric.virtual.tcp.congestion.values import Acked, CongestionControl

__all__ = ["Acked", "CongestionControl", "Cubic", "Reno"]
