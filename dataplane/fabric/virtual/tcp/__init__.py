"""TCP between hosts in virtual time: real segments in real frames, driven by the fabric's clock.

RFC 9293 with the options of RFC 7323 and RFC 2018, loss recovery by RFC 6675 or 6582, timeouts by RFC 6298, ECN by RFC
3168, congestion control by RFC 5681 or RFC 9438.
"""

from dataplane.fabric.virtual.tcp.congestion import Congestion
from dataplane.fabric.virtual.tcp.connection import Connection
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.fabric.virtual.tcp.stack import Listener, TcpStack
from dataplane.fabric.virtual.tcp.states import State
from dataplane.fabric.virtual.tcp.statistics import Sample, TcpStatistics

__all__ = ["Congestion", "Connection", "Listener", "Sample", "State", "TcpSettings", "TcpStack", "TcpStatistics"]
