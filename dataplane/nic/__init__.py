"""Network devices for programs that cannot afford a system call or an interrupt per frame.

`open_nic` binds to a device and starts driver threads. They poll its queues; the flow classifier decides what happens
to each frame, and the packet manager hands it to a consumer in the consumer's own buffers (docs/network/nic.md).

Below it, `open_port`, `memory_pair` and `open_socket_port` make a `NicPort`: queues over AF_PACKET rings, AF_XDP, DPDK,
memory or sockets. The queues go to the kernels of dataplane/nic/ports/kernels, called by a native forwarding loop, or
stay with Python (`receive`, `send`). The package also reads and writes capture files.
"""

from dataplane.nic.buffers.packets import Packet
from dataplane.nic.capture.pcap import Capture, PcapReader, PcapWriter
from dataplane.nic.driver.connection import ConnectionInfo, ConnectionRequest
from dataplane.nic.driver.opening import open_port
from dataplane.nic.flows.classifier import FlowClassifier
from dataplane.nic.flows.rules import Call, Drop, FlowRule, Masked, Range, ToConsumers
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.producer import Producer
from dataplane.nic.modes import Mode
from dataplane.nic.nic import Nic, open_nic
from dataplane.nic.nic_settings import NicSettings
from dataplane.nic.port import LinkStatus, Port, PortReading
from dataplane.nic.ports.memory_port import memory_pair
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import PortKind, PortQueue
from dataplane.nic.ports.socket_port import connect_socket_port, open_socket_port
from dataplane.nic.settings import RingSettings
from dataplane.nic.statistics import NicStatistics, QueueStatistics, ThreadStatistics

__all__ = [
    "Balance",
    "Call",
    "Capture",
    "ConnectionInfo",
    "ConnectionRequest",
    "Consumer",
    "Drop",
    "FlowClassifier",
    "FlowRule",
    "LinkStatus",
    "Masked",
    "Mode",
    "Nic",
    "NicPort",
    "NicSettings",
    "NicStatistics",
    "Packet",
    "PcapReader",
    "PcapWriter",
    "Port",
    "PortKind",
    "PortQueue",
    "PortReading",
    "Producer",
    "QueueStatistics",
    "Range",
    "RingSettings",
    "ThreadStatistics",
    "ToConsumers",
    "connect_socket_port",
    "memory_pair",
    "open_nic",
    "open_port",
    "open_socket_port",
]
