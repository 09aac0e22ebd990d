"""The thread on which the native switch delivers what its workers leave for Python."""

from __future__ import annotations

import logging
import select
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from dataplane.native import kernel_library
from dataplane.native.doorbell import Bell, hear, ring
from dataplane.switch.compiled.cpu_port import RING_FRAMES, CpuPort
from dataplane.switch.compiled.instance import ProgramInstance
from dataplane.switch.compiled.port_control import PortControl
from dataplane.switch.pipeline import DigestMessage

NO_DIGEST_RECEIVER = "no_digest_receiver"
RECEIVER_FAILED = "receiver_failed"

_DEVICE_POLL_MS = 500
"""Interval at which ports that are down are checked."""

logger = logging.getLogger("millrace.switch")
program_log = logging.getLogger("millrace.p4")


class Reporter:
    """Delivers packets, digests, log lines and port changes whenever `bell` is rung, until `close`.

    Receivers are called on this thread, those of digests also on one that replaces the program. A receiver that fails
    loses its data, which is counted, and is called again for the next.
    """

    def __init__(
        self,
        device_id: int,
        bell: Bell,
        *,
        cpu_port: CpuPort,
        ports: PortControl,
        running: Callable[[], ProgramInstance | None],
    ) -> None:
        self._device_id, self._bell = device_id, bell
        library = kernel_library(ring, hear)
        self._ring: Callable[[Bell], None] = library.bind(ring)
        self._hear: Callable[[Bell], None] = library.bind(hear)
        self._cpu_port, self._ports, self._running = cpu_port, ports, running
        self._lock = threading.Lock()  # for counts and for reading events; innermost of all
        self._drops: Counter[str] = Counter()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="switch-reports", daemon=True)
        self.packet_in_receiver: Callable[[bytes], None] | None = None
        self.digest_receiver: Callable[[Sequence[DigestMessage]], None] | None = None

    @property
    def drops(self) -> Counter[str]:
        """Items without a receiver, or whose receiver failed."""
        with self._lock:
            return Counter(self._drops)

    def start(self) -> None:
        """Start delivering."""
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread to check everything soon."""
        self._ring(self._bell)

    def close(self) -> None:
        """End the thread."""
        self._is_closing = True
        self.wake()
        if self._thread.ident is not None:
            self._thread.join()

    def hand_over_events(self, instance: ProgramInstance) -> None:
        """Deliver the digests and log lines of a running program, or of the last one."""
        with self._lock:
            events = instance.read_events()
            if events.digests and self.digest_receiver is None:
                self._drops[NO_DIGEST_RECEIVER] += len(events.digests)
        if events.digests and self.digest_receiver is not None:
            self._call(self.digest_receiver, events.digests)
        for line in events.log_lines:
            program_log.info(line)

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._bell.fd, select.POLLIN)
        while not self._is_closing:
            waiting.poll(_DEVICE_POLL_MS if self._ports.any_device_down else None)
            self._hear(self._bell)
            self._hand_over_packets()
            instance = self._running()
            if instance is not None:
                self.hand_over_events(instance)
            self._ports.read_devices()
            self._ports.read_hellos()

    def _hand_over_packets(self) -> None:
        """Deliver no more packets than the ring holds, so that digests and ports get their turn however many come."""
        for _ in range(RING_FRAMES):
            payload = self._cpu_port.take()
            if payload is None:
                return
            if self.packet_in_receiver is not None:
                self._call(self.packet_in_receiver, payload)
        self.wake()

    def _call(self, receiver: Callable[..., None], *what: object) -> None:
        try:
            receiver(*what)
        except Exception:
            logger.exception("a receiver of switch %d failed", self._device_id)
            with self._lock:
                self._drops[RECEIVER_FAILED] += 1
