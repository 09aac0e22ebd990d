"""Task types, and names derived from other names."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from msgspec import json

from controller.apiserver.resources import Task
from controller.apiserver.resources.base import MAX_NAME

_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_DIGEST: Final = 12
_SHORT: Final = 6


def type_of(task: Task) -> str:
    """Return a task's type: its spec's, else one shared only by tasks of the same program and operators."""
    spec = task.spec
    if spec.task_type is not None:
        return spec.task_type
    content = json.encode((spec.program, spec.category, spec.operators), order="deterministic")
    return f"{spec.program.kind}-{hashlib.sha256(content).hexdigest()[:_DIGEST]}"


def name_of(*words: str | int) -> str:
    """Return words as one valid resource name; a digest distinguishes words that would read alike."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()[:_SHORT]
    text = "-".join(_NOT_IN_NAMES.sub("-", str(word).lower()).strip("-.") or "0" for word in words)
    return f"{text[: MAX_NAME - 1 - _SHORT].strip('-.')}-{digest}"
