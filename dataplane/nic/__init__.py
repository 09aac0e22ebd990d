"""Receive and transmit queues: of network devices (AF_PACKET rings, AF_XDP), in memory, on sockets, and capture files.

`open_port`, `memory_pair` and `open_socket_port` make a `NicPort`; its `queues` go to the kernels of
dataplane/nic/kernels, which a native forwarding loop calls, or stay with Python (`receive`, `send`).
"""

from dataplane.nic.memory_port import memory_pair
from dataplane.nic.nic_port import NicPort
from dataplane.nic.opening import open_port
from dataplane.nic.pcap import Capture, PcapReader, PcapWriter
from dataplane.nic.port import Port, PortReading
from dataplane.nic.queue import PortKind, PortQueue
from dataplane.nic.settings import RingSettings
from dataplane.nic.socket_port import connect_socket_port, open_socket_port

__all__ = [
    "Capture",
    "NicPort",
    "PcapReader",
    "PcapWriter",
    "Port",
    "PortKind",
    "PortQueue",
    "PortReading",
    "RingSettings",
    "connect_socket_port",
    "memory_pair",
    "open_port",
    "open_socket_port",
]
