"""Logs changes of ports and neighbours, one line each."""

from __future__ import annotations

import logging

from dataplane.switch.ports.states import Diagnostic, HelloSession, HelloState, OperStatus, PortState

logger = logging.getLogger("millrace.switch")

_CAUSES = {
    OperStatus.DOWN: "is down",
    OperStatus.LOWER_LAYER_DOWN: "is down (no carrier)",
    OperStatus.NOT_PRESENT: "is down (the device is gone)",
    OperStatus.UNKNOWN: "does not report whether it is up",
}


class PortLog:
    """A listener that logs a port's changes since its last call."""

    def __init__(self, states: dict[int, PortState]) -> None:
        self._states = dict(states)

    def __call__(self, state: PortState) -> None:
        """Log the changes."""
        before, self._states[state.port] = self._states[state.port], state
        where = f"port {state.port} ({state.device})"
        if state.oper is not before.oper:
            if state.oper is OperStatus.UP:
                logger.info("%s is up again", where)
            else:
                logger.warning("%s %s; other ports continue", where, _CAUSES[state.oper])
        if state.admin_up is not before.admin_up:
            logger.info("%s is %s", where, "enabled" if state.admin_up else "disabled")
        if state.not_joined != before.not_joined:
            # The initial state is available on request.
            level = logging.DEBUG if before.not_joined is None else logging.INFO
            how = f"are sent one by one: {state.not_joined}" if state.not_joined else "are joined"
            logger.log(level, "%s: TCP segments %s", where, how)
        for line, level in _hello_lines(before.hello, state.hello):
            logger.log(level, "%s: %s", where, line)


def _hello_lines(before: HelloSession | None, after: HelloSession | None) -> list[tuple[str, int]]:
    """Return the lines to log, with their level: a session that goes down after it was up is worth a warning."""
    was_up, was_lost = before is not None and before.state is HelloState.UP, before is not None and before.is_lost
    if after is None:
        return [("hellos stopped", logging.INFO)] if before is not None else []
    if after.state is HelloState.UP:
        return [] if was_up else [(f"hello from neighbour {after.remote_discriminator:#x}", logging.INFO)]
    if after.is_lost and not was_lost and after.state is not HelloState.ADMIN_DOWN:
        return [(f"neighbour lost: {_cause(after)}", logging.WARNING)]
    return []


def _cause(hello: HelloSession) -> str:
    if hello.remote_state is HelloState.ADMIN_DOWN:
        return "its port is disabled"
    if hello.diagnostic is Diagnostic.NEIGHBOR_SIGNALED_DOWN:
        return "it does not receive our hellos, or has restarted"
    return f"no hello for {hello.settings.multiplier} intervals"
