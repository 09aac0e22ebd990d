"""Log records of a test, without those of other tests."""

from __future__ import annotations

import pytest

_POLLER = "Exception in callback PollerCompletionQueue._handle_events"


def stacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log records with a stack trace.

    gRPC's poller is the whole process's: what it finds for an event loop that an earlier test has closed, it has the
    loop of a later one log.
    """
    records = (record for record in caplog.records if record.exc_info)
    return [text for record in records if not (text := record.getMessage()).startswith(_POLLER)]
