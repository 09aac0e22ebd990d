"""The switch as a process: network devices, the forwarding loop, and the P4Runtime server in its own thread.

`millrace switch` and `python -m dataplane.switch.process` end up here.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dataplane.clock import MonotonicClock
from dataplane.errors import MillraceError, ProgramError, SwitchError, in_one_line
from dataplane.nic.managed.reporter import QueueReporter
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.arguments import SwitchSettings, parse_arguments
from dataplane.switch.attachments import is_device, with_tc_rates
from dataplane.switch.drivers import SwitchDriver, make_driver
from dataplane.switch.drop_in.capture import Capture
from dataplane.switch.drop_in.logs import logging_to
from dataplane.switch.drop_in.names import CALLED_AS, OWN_NAME
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.runtime_api.control import RuntimeControl
from dataplane.switch.waiting import Waiter

__all__ = ["SwitchSettings", "main", "parse_arguments", "run"]

STATS_PERIOD_NS = 1_000_000_000

logger = logging.getLogger("millrace.switch")


def main(argv: Sequence[str] | None = None, name: str = OWN_NAME) -> int:
    """Run a switch from a command line; return the exit status: 0 stopped, 1 failed (one line on stderr), 130 by ^C.

    `name` is the command's name, `millrace switch` or one of bmv2's.
    """
    try:
        run(parse_arguments(sys.argv[1:] if argv is None else argv, name))
    except MillraceError as error:
        sys.stderr.write(in_one_line(f"{name}: {error}") + "\n")
        return 1
    except KeyboardInterrupt:  # before `run` handles signals itself
        return 130
    return 0


def run(settings: SwitchSettings) -> None:
    """Forward until SIGTERM, SIGINT or the end of the lifeline; raise MillraceError if it cannot start."""
    with ExitStack() as stack:
        stack.enter_context(logging_to(settings.log_file, settings.log_level, settings.bmv2))
        for note in settings.notes:
            logger.warning("%s", note)
        program = None
        if settings.program is not None:
            program = load_program(settings.program, settings.p4info, entries=settings.presets)
            _note_missing(program, settings)
        if settings.bmv2.tc_rates:
            settings = with_tc_rates(settings)
        waiter = stack.enter_context(Waiter())
        driver = make_driver(stack, settings)
        _capture(stack, settings)
        core = P4RuntimeCore(driver.control, epoch_ns=time.time_ns)
        gnmi = GnmiCore(driver.control, epoch_ns=time.time_ns)
        loop = _Loop(driver, lambda: core.drops | gnmi.drops, waiter, settings)
        _serve_metrics(stack, driver, lambda: core.drops | gnmi.drops, settings)
        calls = {signal.SIGTERM: loop.stop, signal.SIGINT: loop.stop, signal.SIGHUP: loop.hang_up}
        stack.enter_context(waiter.calling(calls))
        # Clients waiting for the address need not wait for the compiler; their requests do.
        with core.held():
            stack.enter_context(
                P4RuntimeServer(core, [settings.grpc_address], settings.tls, beside=[GnmiService(gnmi)])
            )
            if program is not None:
                driver.commit(program)
                _notice_program(core, settings)
        driver.start(waiter)
        _serve_runtime_api(stack, driver.control, settings)
        if any(is_device(port.device) for port in settings.ports):
            stack.enter_context(QueueReporter(f"switch {settings.device_id}", driver.polled))
        # Once the ready file exists, so do the statistics.
        loop.start_stats()
        stack.enter_context(_ready(driver.control, settings))
        loop.run()


def _note_missing(program: Program, settings: SwitchSettings) -> None:
    """Log which properties the program lacks that a file next to it would provide."""
    if settings.p4info is None:
        logger.info("no P4Info next to %s: P4Runtime waits for a controller to push both", settings.program)
    elif settings.presets is None:
        open_tables = [table.name for table in program.tables.values() if table.presets and not table.is_const]
        if open_tables:
            line = "no entries file next to %s: all entries of %s are writable, const or not"
            logger.info(line, settings.program, ", ".join(open_tables))


class _Loop:
    """Waits for the driver's events and for the time to write statistics."""

    def __init__(
        self,
        driver: SwitchDriver,
        read_drops: Callable[[], Mapping[str, int]],
        waiter: Waiter,
        settings: SwitchSettings,
    ) -> None:
        """Write the drops that `read_drops` returns, those of the control plane, together with the driver's own."""
        self._driver = driver
        self._read_drops = read_drops
        self._waiter = waiter
        self._clock = MonotonicClock()
        self._device_id = settings.device_id
        self._stats_file = settings.stats_file
        self._lifeline = settings.lifeline_fd
        self._stats_ns = self._clock.now_ns()
        self._stopped = self._hung_up = False
        if self._lifeline is not None:
            _watch_lifeline(waiter, self._lifeline)

    def stop(self) -> None:
        """Make `run` return; may be called from a signal handler or another thread."""
        self._stopped = True
        self._waiter.wake()

    def hang_up(self) -> None:
        """Make the loop log that SIGHUP changes nothing; may be called from a signal handler."""
        self._hung_up = True
        self._waiter.wake()

    def run(self) -> None:
        """Forward until `stop`; then notify the neighbours."""
        self._forward()
        self._driver.take_leave()
        self.write_stats(last=True)

    def _forward(self) -> None:
        while not self._stopped:
            ready = self._waiter.wait(self._next_due_ns(), self._clock.now_ns())
            if self._hung_up:
                self._hung_up = False
                logger.warning("SIGHUP has no effect: P4Runtime and gNMI configure the switch")
            if self._lifeline in ready:
                logger.info("the process that started this switch is gone: stopping")
                return
            self._driver.step(ready)
            self.write_stats()

    def _next_due_ns(self) -> int | None:
        due_ns = self._driver.next_due_ns()
        if self._stats_file is None:
            return due_ns
        return self._stats_ns if due_ns is None else min(due_ns, self._stats_ns)

    def start_stats(self) -> None:
        """Write the statistics file for the first time; raise SwitchError if it cannot be written."""
        if self._stats_file is not None:
            self._replace_stats(self._stats_file)

    def write_stats(self, *, last: bool = False) -> None:
        """Replace the statistics file if it is due, or if this is the last time; give up once that fails."""
        if self._stats_file is None or (self._clock.now_ns() < self._stats_ns and not last):
            return
        try:
            self._replace_stats(self._stats_file)
        except SwitchError as error:
            logger.warning("statistics are no longer written: %s", error)
            self._stats_file = None

    def _replace_stats(self, path: Path) -> None:
        now_ns = self._clock.now_ns()
        self._stats_ns = now_ns + STATS_PERIOD_NS
        stats = self._driver.read_stats(self._read_drops()) | {"time_ns": now_ns, "device_id": self._device_id}
        _replace(path, json.dumps(stats, sort_keys=True))


def _capture(stack: ExitStack, settings: SwitchSettings) -> None:
    """Capture traffic at devices, if requested; raise PortError if that is impossible."""
    options = settings.bmv2
    if options.pcap is None and not options.dump_bytes:
        return
    devices = {port.settings.number: port.device for port in settings.ports if is_device(port.device)}
    stack.enter_context(Capture(devices, options.pcap, options.dump_bytes))


def _notice_program(core: P4RuntimeCore, settings: SwitchSettings) -> None:
    try:
        core.notice_program()
    except ProgramError as error:  # accepted by the loader, but P4Runtime cannot serve it
        raise ProgramError(error.problem, file=str(settings.p4info), construct=error.construct) from error


def _serve_runtime_api(stack: ExitStack, control: RuntimeControl, settings: SwitchSettings) -> None:
    """Serve bmv2's runtime API if a port is given for it; without the library, which is an extra, log that."""
    port = settings.bmv2.thrift_port
    if port is None:
        return
    try:
        from dataplane.switch.runtime_api.api import serve  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as error:
        logger.warning("--thrift-port %d is not served: %s (pip install 'millrace-net[thrift]')", port, error)
        return
    logger.info("runtime API (Thrift) on 127.0.0.1:%d", stack.enter_context(serve(control, port)))


def _serve_metrics(
    stack: ExitStack, driver: SwitchDriver, read_drops: Callable[[], Mapping[str, int]], settings: SwitchSettings
) -> None:
    if settings.metrics_port is None:
        return
    from dataplane.switch.metrics import serve  # noqa: PLC0415 - loads an HTTP server

    logger.info("metrics at %s", serve(settings.metrics_port, driver, read_drops, stack))


def _watch_lifeline(waiter: Waiter, descriptor: int) -> None:
    try:
        waiter.watch(descriptor)
    except OSError as error:
        raise SwitchError(f"--lifeline-fd {descriptor} is not a pipe that can be watched: {error.strerror}") from error


@contextmanager
def _ready(switch: SwitchControl, settings: SwitchSettings) -> Iterator[None]:
    """Announce the switch while it runs: the ready file, and a line in the log."""
    if settings.ready_file is not None:
        _replace(settings.ready_file, f"{os.getpid()}\n")
    ports = " ".join(f"{port.settings.number}@{port.device}" for port in settings.ports)
    program = switch.program.name if switch.program is not None else "none yet"
    logger.info(
        "switch %d ready: P4Runtime on %s, ports %s, program %s",
        switch.device_id,
        settings.grpc_address,
        ports or "none",
        program,
    )
    try:
        yield
    finally:
        if settings.ready_file is not None:
            settings.ready_file.unlink(missing_ok=True)


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never a part; raise SwitchError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise SwitchError(f"{path}: {error.strerror}") from error


def _run_command(words: Sequence[str]) -> int:
    """Run `[--as NAME] ARGUMENT...`; the shims of bmv2's names pass their name."""
    return main(words[2:], words[1]) if words[:1] == [CALLED_AS] else main(words)


if __name__ == "__main__":
    sys.exit(_run_command(sys.argv[1:]))
