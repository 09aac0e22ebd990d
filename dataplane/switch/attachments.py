"""Opens the attachments of a switch process's ports: network devices, UNIX sockets, capture files."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

from dataplane.errors import PortError
from dataplane.nic import (
    NicPort,
    PcapReader,
    PcapWriter,
    PortKind,
    RingSettings,
    connect_socket_port,
    memory_pair,
    open_port,
)
from dataplane.nic.devices.far_end import NO_VETH, PLAIN_STACK
from dataplane.nic.devices.shaping import shaped_rate_bps
from dataplane.nic.ports.join_watch import JoinWatch
from dataplane.switch.arguments import (
    KERNEL_RINGS,
    MESSAGES,
    AttachedPort,
    DriverSettings,
    SwitchSettings,
)
from dataplane.switch.drop_in.packet_in import PacketIn
from dataplane.switch.ports.joining import Joining

__all__ = ["CaptureFiles", "open_attachment", "open_attachments", "watch_joining"]

logger = logging.getLogger("millrace.switch")

_KINDS = {"ring": PortKind.PACKET_V2, "throughput": PortKind.PACKET_V3, "xdp": PortKind.XDP, "dpdk": PortKind.DPDK}
_JOINING: Final[Mapping[Joining, Literal["never", "gated", "always"]]] = {
    Joining.AUTO: "gated",
    Joining.ON: "always",
    Joining.OFF: "never",
}
_SOCKET_PREFIX = "unix:"
_FILE_SLOTS = 1024
_MESSAGE_SLOTS = 128
_FRAMES_OF_ALL_RINGS, _LEAST_RING_FRAMES, _MOST_RING_FRAMES = 16_384, 512, 8_192
_BURST_FRAMES = 64
_POLL_S = 0.002


def open_attachments(stack: ExitStack, settings: SwitchSettings) -> dict[int, NicPort]:
    """Open the attachments of all ports; return them by number. The stack closes them. Raises PortError."""
    if settings.bmv2.packet_in is not None:
        return _open_messages(stack, settings, settings.bmv2.packet_in)
    return {
        port.settings.number: open_attachment(stack, port, settings.driver, _rings(settings, position))
        for position, port in enumerate(settings.ports)
    }


def with_tc_rates(settings: SwitchSettings) -> SwitchSettings:
    """Return settings in which ports without a rate have the rate to which tc limits their device."""
    return replace(settings, ports=tuple(_with_tc_rate(port) for port in settings.ports))


def _with_tc_rate(port: AttachedPort) -> AttachedPort:
    if port.settings.rate_bps is not None or not is_device(port.device):
        return port
    rate_bps = shaped_rate_bps(port.device)
    if rate_bps is None:
        return port
    logger.info("port %d sends at %d bit/s, the tc rate of %s", port.settings.number, rate_bps, port.device)
    return replace(port, settings=replace(port.settings, rate_bps=rate_bps))


def _open_messages(stack: ExitStack, settings: SwitchSettings, address: str) -> dict[int, NicPort]:
    cables = {
        port.settings.number: memory_pair((port.device, port.device), slots=_MESSAGE_SLOTS) for port in settings.ports
    }
    for ends in cables.values():
        for end in ends:
            stack.callback(end.close)
    stack.enter_context(PacketIn(address, {number: far for number, (_, far) in cables.items()}))
    return {number: near for number, (near, _) in cables.items()}


def open_attachment(stack: ExitStack, port: AttachedPort, settings: DriverSettings, rings: RingSettings) -> NicPort:
    """Open a port's attachment, with a queue for each worker if it can have several.

    The stack closes it. Raises PortError.
    """
    device = port.device
    if port.joining is Joining.ON and not is_device(device):
        raise PortError(f"port {port.settings.number}: TCP segments are joined on network devices, not on {device}")
    if device.startswith(_SOCKET_PREFIX):
        opened = connect_socket_port(Path(device.removeprefix(_SOCKET_PREFIX)), device)
    elif is_device(device):
        opened = open_port(device, _KINDS[settings.io], settings.threads, rings)
    else:
        source, _, target = device.partition(",")
        opened, other = memory_pair((device, device), slots=_FILE_SLOTS)
        files = CaptureFiles(other, Path(source), Path(target), wait_s=settings.files_wait_s)
        stack.callback(files.close)
    stack.callback(opened.close)
    return opened


def watch_joining(
    stack: ExitStack, settings: SwitchSettings, opened: Mapping[int, NicPort]
) -> tuple[JoinWatch | None, dict[int, str]]:
    """Return what opens the gates of ports that join where that is safe, and why the other ports do not join.

    The stack closes it. A process without the rights to inspect the cable, such as a service without root, joins
    nothing.
    """
    reasons: dict[int, str] = {}
    gated: dict[int, NicPort] = {}
    for port in settings.ports:
        number = port.settings.number
        reason = _why_not(port, settings.driver.io)
        if reason is None and opened[number].gate is not None:
            gated[number] = opened[number]
        else:
            reasons[number] = NO_VETH if reason is None else reason
    if not gated:
        return None, reasons
    try:
        watch = JoinWatch(gated)
    except PortError as error:
        return None, reasons | dict.fromkeys(gated, str(error))
    stack.callback(watch.close)
    return watch, reasons


def _why_not(port: AttachedPort, io: str) -> str | None:
    """Return why a port never joins, "" if it always does, None if that depends."""
    if not is_device(port.device):
        return "it is not on a network device"
    if io not in KERNEL_RINGS:
        return f"--io {io} bypasses the kernel"
    return {Joining.AUTO: None, Joining.ON: PLAIN_STACK, Joining.OFF: "--join-segments off"}[port.joining]


def _rings(settings: SwitchSettings, position: int) -> RingSettings:
    """Return the rings of one of the ports; flows are spread differently than on its neighbours."""
    joining = settings.ports[position].joining if settings.driver.io in KERNEL_RINGS else Joining.OFF
    frames = _ring_frames(len(settings.ports))
    return RingSettings(rx_frames=frames, join_segments=_JOINING[joining], first_queue=position)


def _ring_frames(ports: int) -> int:
    """Return the frames of each port's ring: large against loss, yet bounded in total on a switch of many ports."""
    return min(_MOST_RING_FRAMES, max(_LEAST_RING_FRAMES, _FRAMES_OF_ALL_RINGS // max(1, ports)))


def is_device(device: str) -> bool:
    """Return whether a port is attached to a network device, not to a UNIX socket or files."""
    return not device.startswith((_SOCKET_PREFIX, MESSAGES)) and "," not in device


class CaptureFiles:
    """Feeds a cable end from a capture file, as fast as it takes frames, and writes what comes back to another file.

    Begins `wait_s` seconds after creation. Raises PortError if the files cannot be opened. The log says, once the file
    is read, where it is damaged, which ends it, and what was left out: frames that the capture cut, which no port could
    have received, and blocks that were not read. `has_ended` says that nothing more comes.
    """

    def __init__(self, end: NicPort, source: Path, target: Path, *, wait_s: float = 0) -> None:
        self._end = end
        self._stopping = threading.Event()
        self._reader = PcapReader(source)
        try:
            self._writer = PcapWriter(target)
        except PortError:
            self._reader.close()
            raise
        self._wait_s = wait_s
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name=f"files-{source.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Write pending frames and close the files."""
        self._stopping.set()
        self._thread.join()
        self._write()
        self._writer.close()
        self._reader.close()
        self._end.close()

    def _run(self) -> None:
        self._stopping.wait(self._wait_s)
        try:
            self._exchange()
        except PortError as error:
            logger.error("%s: no more frames are fed or written", error)  # noqa: TRY400 (one line)

    def _exchange(self) -> None:
        frames: list[bytes] = []
        while not self._stopping.is_set():
            if not frames and not self.has_ended:
                frames = self._read()
            sent = self._end.send(frames)
            frames = frames[sent:]
            if not self._write() and not sent:
                self._stopping.wait(_POLL_S)

    def _read(self) -> list[bytes]:
        """Return the next frames, none at the end of the file."""
        frames: list[bytes] = []
        try:
            for capture in self._reader:
                if capture.is_whole:
                    frames.append(capture.frame)
                if len(frames) == _BURST_FRAMES:
                    return frames
        except PortError as error:
            logger.error("%s: it ends here", error)  # noqa: TRY400 (one line)
        self.has_ended = True
        for line in self._reader.left_out():
            logger.warning("%s: they are left out", line)
        return frames

    def _write(self) -> int:
        frames = self._end.receive(_BURST_FRAMES)
        for frame in frames:
            self._writer.write(frame, time.time_ns())
        return len(frames)
