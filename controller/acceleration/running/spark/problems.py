"""Errors of Spark, which are pages of Java's stack traces, in a line each."""

from __future__ import annotations

import re
from typing import Final

_CLASS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\][^\n]*")
"""Spark's line about an error that it knows, as in `[DIVIDE_BY_ZERO] Division by zero. ...`."""
_MOST_LINE: Final = 300
_KNOWN: Final = (
    ("No space left on device", "disk-full", ""),
    ("maxResultSize", "too-large", ""),
    ("OutOfMemoryError", "memory", ""),
    ("Master removed our application", "lost", "the cluster has ended it, as its executors have failed"),
    ("All masters are unresponsive", "lost", "the master does not answer, or refuses the secret"),
    ("ExecutorLostFailure", "lost", "its executors have ended"),
    ("SparkContext was shut down", "lost", "the cluster has ended it"),
    ("stopped SparkContext", "lost", "the cluster has ended it"),
    ("FetchFailed", "lost", "results of executors that have ended could not be computed again"),
)


def problem_of(text: str) -> dict[str, str]:
    """Return the kind of an error of this text, and one line that says what it is."""
    if (raised := re.search(r"\[USER_RAISED_EXCEPTION\] (.*?)(?: SQLSTATE: \w+)?$", text, re.MULTILINE)) is not None:
        return {"kind": "statement", "problem": raised[1]}
    for word, kind, problem in _KNOWN:
        if word in text:
            return {"kind": kind, "problem": problem}
    line = found[0] if (found := _CLASS.search(text)) else text.splitlines()[0]
    return {"kind": "error", "problem": line[:_MOST_LINE]}
