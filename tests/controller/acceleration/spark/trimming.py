"""Trims an event log of Spark to what is committed here: no paths, hosts or users of the machine, no long texts.

    python -m tests.controller.acceleration.spark.trimming [--short] /tmp/tables=/data LOG... > TRIMMED

Events that nothing reads are left out, of all others the fields that nobody needs; what is left is Spark's. Properties
get made-up credentials, as logs have them when they are set under a name that Spark does not redact.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from controller.acceleration.spark.files import Lines, Log

SECRET: Final = "hunter2-do-not-print"
_PROPERTIES: Final = {
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.hadoop.fs.azure.account.key.store": SECRET,
    "spark.custom.password": SECRET,
    "spark.custom.token": SECRET,
}
_KEPT: Final = (
    *("LogStart", "ApplicationStart", "ApplicationEnd", "ExecutorAdded", "ExecutorRemoved", "EnvironmentUpdate"),
    *("JobStart", "JobEnd", "StageCompleted", "TaskEnd", "SQLExecutionStart", "SQLExecutionEnd"),
    *("SQLAdaptiveExecutionUpdate", "DriverAccumUpdates"),
)
_UPDATE: Final = "SQLAdaptiveExecutionUpdate"
_DROPPED: Final = (
    *("physicalPlanDescription", "details", "Details", "RDD Info", "Task Executor Metrics", "modifiedConfigs"),
    *("JVM Information", "Hadoop Properties", "System Properties", "Classpath Entries", "Metrics Properties"),
    *("Stage Infos", "Log Urls", "Attributes", "Updated Blocks", "Push Based Shuffle", "jobTags", "sparkPlanInfoText"),
)


def trimmed(event: dict[str, Any]) -> dict[str, Any] | None:
    """Return an event with the fields that are kept, None for one that is left out."""
    if not event["Event"].endswith(_KEPT):
        return None
    for name in ("Properties", "Spark Properties"):
        if name in event:
            number = event[name].get("spark.sql.execution.id")
            event[name] = _PROPERTIES | ({} if number is None else {"spark.sql.execution.id": number})
    if "User" in event:
        event["User"] = "someone"
    kept: dict[str, Any] = _without(event)
    return kept


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without(part) for name, part in value.items() if name not in _DROPPED}
        if "Accumulables" in kept:
            kept["Accumulables"] = [one for one in kept["Accumulables"] if one.get("Metadata") == "sql"]
        if "Host" in kept:
            kept["Host"] = "host-1"
        return kept
    if isinstance(value, list):
        return [_without(part) for part in value]
    return value


def lines(files: tuple[Path, ...], folders: Sequence[tuple[str, str]], *, is_short: bool) -> Iterator[str]:
    """Yield the trimmed lines of a log; `folders` are names of folders and what replaces them.

    A short one has only the last plan of each query.
    """
    events = [json.loads(line) for line in Lines(Log("log", files))]
    last = {event["executionId"]: at for at, event in enumerate(events) if event["Event"].endswith(_UPDATE)}
    for at, event in enumerate(events):
        if is_short and event["Event"].endswith(_UPDATE) and last[event["executionId"]] != at:
            continue
        if (kept := trimmed(event)) is not None:
            text = json.dumps(kept, separators=(",", ":"))
            for folder, other in folders:
                text = text.replace(folder, other)
            yield text


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--short"]
    pairs = [(before, after) for before, is_pair, after in (word.partition("=") for word in words) if is_pair]
    logs = tuple(Path(word) for word in words if "=" not in word)
    for line in lines(logs, pairs, is_short="--short" in sys.argv):
        print(line)
