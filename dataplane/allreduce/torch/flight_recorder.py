"""The last collectives of a worker in PyTorch's flight-recorder format, version 2.10, for its own analyser.

`python -m torch.distributed.flight_recorder.fr_trace FOLDER` merges one file of each rank, PREFIX0, PREFIX1, ..., and
shows which rank did not call a collective, or called another one. The analyser accepts names of backends that it knows,
so ours appear as `gloo:all_reduce`; the process group's name tells them apart. Settings are PyTorch's variables:
TORCH_FR_BUFFER_SIZE (2,000 collectives; 0: none) and TORCH_FR_DUMP_TEMP_FILE (PREFIX; none: files only on request).
"""

from __future__ import annotations

import inspect
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch

_VERSION: Final = "2.10"
_DEPTH: Final = 24
"""Maximum number of stack frames kept of each call."""
_SIZE, _PREFIX = "TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"
_DTYPES: Final = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}
"""PyTorch's names of formats in these files."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """Shapes and formats of a collective's tensors."""

    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, tensors: Sequence[torch.Tensor]) -> Self:
        """Describe tensors."""
        names = (_DTYPES.get(each.dtype, str(each.dtype)) for each in tensors)
        return cls(tuple(tuple(each.shape) for each in tensors), tuple(names))


@dataclass(frozen=True, slots=True)
class Call:
    """A collective by PyTorch's name, such as all_reduce, and its tensors."""

    name: str
    inputs: Tensors
    outputs: Tensors

    @classmethod
    def all_reduce(cls, tensor: torch.Tensor) -> Self:
        """Describe an all-reduce in place."""
        tensors = Tensors.of([tensor])
        return cls("all_reduce", tensors, tensors)

    def __str__(self) -> str:
        return f"{self.name} of {', '.join(str(list(size)) for size in self.inputs.sizes) or 'nothing'}"


@dataclass(slots=True)
class _Entry:
    number: int
    call: Call
    frames: list[dict[str, Any]]
    thread: tuple[int, str]
    created_ns: int
    started_ns: int | None = None
    completed_ns: int | None = None

    @property
    def state(self) -> str:
        if self.completed_ns is not None:
            return "completed"
        return "scheduled" if self.started_ns is None else "started"


@dataclass(frozen=True, slots=True)
class GroupName:
    """A process group as the analyser tells it from others: the same at all members."""

    name: str
    description: str
    ranks: tuple[int, ...]


class FlightRecorder:
    """Ring buffer of a group's collectives; they are numbered from 0 and complete in order. For several threads."""

    def __init__(
        self, group: GroupName, rank: int, *, capacity: int = 2000, prefix: str = "", timeout_s: float = 0.0
    ) -> None:
        """Keep the last `capacity` of `rank`; `prefix` is where `write` puts the file, if it is not told."""
        self._group, self._rank, self._prefix, self._timeout_s = group, rank, prefix, timeout_s
        self._entries: deque[_Entry] = deque(maxlen=capacity)
        self._lock = threading.Lock()
        self._enqueued = self._started = self._completed = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], group: GroupName, rank: int, timeout_s: float) -> Self:
        """Make one with PyTorch's variables; a size that is no number counts as 0, as there."""
        size = environment.get(_SIZE, "2000")
        capacity = int(size) if size.isdecimal() else 0
        return cls(group, rank, capacity=capacity, prefix=environment.get(_PREFIX, ""), timeout_s=timeout_s)

    @property
    def prefix(self) -> str:
        """Path of the file without the rank; empty if none is set."""
        return self._prefix

    def scheduled(self, number: int, call: Call) -> None:
        """Record a call, with its caller's stack."""
        if not self._entries.maxlen:
            return
        thread = threading.current_thread()
        entry = _Entry(number, call, _frames(), (thread.ident or 0, thread.name), time.time_ns())
        with self._lock:
            self._entries.append(entry)
            self._enqueued = number + 1

    def started(self, number: int) -> None:
        """Record that the workers' values are being added up; idempotent."""
        with self._lock:
            entry = self._find(number)
            if entry is not None and entry.started_ns is None:
                entry.started_ns = time.time_ns()
            self._started = number + 1

    def completed(self, number: int) -> None:
        """Record a result, or a failure of this collective alone."""
        with self._lock:
            entry = self._find(number)
            if entry is not None:
                entry.completed_ns = time.time_ns()
            self._completed = number + 1

    def dump(self) -> dict[str, Any]:
        """Return what PyTorch's analyser unpickles."""
        name, description = self._group.name, self._group.description
        with self._lock:
            status = {
                "last_enqueued_collective": self._enqueued or -1,
                "last_started_collective": self._started or -1,
                "last_completed_collective": self._completed or -1,
            }
            entries = [self._row(entry) for entry in self._entries]
        return {
            "version": _VERSION,
            "comm_lib_version": "millrace",
            "pg_config": {name: {"name": name, "desc": description, "ranks": str(list(self._group.ranks))}},
            "pg_status": {name: status},
            "entries": entries,
        }

    def write(self, prefix: str | None = None) -> Path | None:
        """Write the file PREFIX + rank whole, replacing an older one; None without a prefix. Raises OSError."""
        prefix = self._prefix if prefix is None else prefix
        if not prefix:
            return None
        path = Path(f"{prefix}{self._rank}")
        part = path.with_name(f".{path.name}.{os.getpid()}")  # the analyser takes every name with a number at its end
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(pickle.dumps(self.dump()))
        part.replace(path)
        return path

    def _find(self, number: int) -> _Entry | None:
        at = number - self._entries[0].number if self._entries else -1
        return self._entries[at] if 0 <= at < len(self._entries) else None

    def _row(self, entry: _Entry) -> dict[str, Any]:
        return {
            "record_id": entry.number,
            "pg_id": 0,
            "process_group": (self._group.name, self._group.description),
            "collective_seq_id": entry.number + 1,
            "p2p_seq_id": 0,
            "op_id": entry.number + 1,
            "profiling_name": f"gloo:{entry.call.name}",
            "time_created_ns": entry.created_ns,
            "time_discovered_started_ns": entry.started_ns,
            "time_discovered_completed_ns": entry.completed_ns,
            "input_sizes": [list(size) for size in entry.call.inputs.sizes],
            "input_dtypes": list(entry.call.inputs.dtypes),
            "output_sizes": [list(size) for size in entry.call.outputs.sizes],
            "output_dtypes": list(entry.call.outputs.dtypes),
            "state": entry.state,
            "timeout_ms": int(self._timeout_s * 1000),
            "is_p2p": False,
            "retired": entry.completed_ns is not None,
            "thread_id": str(entry.thread[0]),
            "thread_name": entry.thread[1],
            "frames": entry.frames,
        }


def _frames() -> list[dict[str, Any]]:
    """Return the stack of the caller's caller, innermost first."""
    frames: list[dict[str, Any]] = []
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    while frame is not None and len(frames) < _DEPTH:
        frames.append({"name": frame.f_code.co_name, "filename": frame.f_code.co_filename, "line": frame.f_lineno})
        frame = frame.f_back
    return frames
