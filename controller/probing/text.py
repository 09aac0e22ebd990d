"""A probe task as text for people: what it runs, how often, and where the means go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.probing.values import KernelUse, ProbeTask

_MOST_UNMATCHED: Final = 5
_ALIGNED: Final = 5


def heading(probe: ProbeTask) -> str:
    """Return in one line what a probe task is built for, and how much of that it covers."""
    words = [probe.category]
    if probe.task_type:
        words.append(f"for tasks of type {probe.task_type}")
    if probe.target:
        words.append(f"built from {probe.target} at {probe.ratio}:1")
        if probe.share_matched is not None:
            words.append(f"stands for {probe.share_matched:.1%} of it")
    else:
        words.append("written by an expert")
    if (reference := probe.reference) is not None:
        kernels_s = sum(
            seconds * probe.use[name].executions * probe.use[name].scale for name, seconds in reference.kernels_s
        )
        words.append(f"which took {reference.cpu_time_s / kernels_s:.2f} of its kernels' time, where it was built")
    if len(probe.parts) > 1:
        words.append(f"{len(probe.parts)} parts without a link")
    return ", ".join(words)


def lines_of(probe: ProbeTask) -> Iterator[str]:
    """Yield a probe task's lines: its heading, each part's uses in run order, and its kernels."""
    yield f"{probe.name}: {heading(probe)}"
    cells = {name: _cells(probe, probe.use[name]) for name in probe.order}
    widths = [max(len(row[at]) for row in cells.values()) for at in range(_ALIGNED)]
    for number, part in enumerate(probe.parts, 1):
        if len(probe.parts) > 1:
            yield f"part {number}"
        for name in part:
            row = cells[name]
            aligned = (f"{cell:<{width}}" for cell, width in zip(row[:_ALIGNED], widths, strict=True))
            yield "  ".join(("", *aligned, *row[_ALIGNED:])).rstrip()
    versions = sorted({(use.kernel, use.version) for use in probe.uses})
    yield f"kernels: {', '.join(f'{kernel}.{version}' for kernel, version in versions)}"
    if probe.unmatched:
        more = len(probe.unmatched) - _MOST_UNMATCHED
        names = ", ".join(probe.unmatched[:_MOST_UNMATCHED]) + (f" and {more} more" if more > 0 else "")
        yield f"without a match: {names}"


def counted(executions: int) -> str:
    """Return how often something runs, for people."""
    return f"{executions:,}"


def sizes_line(use: KernelUse) -> str:
    """Return a use's sizes in one line."""
    return " ".join(f"{name}={size}" for name, size in use.sizes) or "no sizes"


def _cells(probe: ProbeTask, use: KernelUse) -> tuple[str, ...]:
    """Return the contents of a use's line: _ALIGNED cells in columns, and the targets of its mean."""
    code = use.implementation
    target = f"for {counted(use.executions)} of {use.operator}" if use.operator else ""
    if use.scale != 1:
        target += f", each {use.scale:.3g} times the work"
    readers = [link.dst for link in probe.links if link.src == use.name]
    what = f"mean of {use.repetitions}" if use.repetitions > 1 else "output"
    goes = f"-> {what} to {', '.join(readers)}" if readers else ""
    kernel = "" if use.name.startswith(use.kernel) else use.kernel
    return (
        f"{use.name} {kernel}".strip(),
        f"x {use.repetitions}",
        sizes_line(use),
        f"{code.library.value} on {code.device.value}",
        target,
        goes,
    )
