"""Probe kernels and the probe tasks that are made of them, as frozen values; light to import, as the runner needs them.

A probe task is a small program that resembles a target task: uses of kernels, and links along which a kernel's mean
output feeds the next.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.probing.errors import ProbeError, ProbeKernelError
from dataplane.topology.values import DeviceKind, NumberFormat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sizes = tuple[tuple[str, int], ...]
"""Sizes by name, sorted."""

FORMAT_VERSION: Final = 1
MOST_USES: Final = 256
MOST_LINKS: Final = 4096
MOST_SIZES: Final = 64
MOST_UNMATCHED: Final = 4096
LONGEST_LINE: Final = 1024
"""Longest line, for names that people and targets give."""
MOST_REPETITIONS: Final = 100_000
MAX_SIZE: Final = 1 << 53
"""Largest integer that JSON keeps exactly in any language."""

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,98}[a-z0-9])?")
_IDENTIFIER: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_MOST_TOLERANCE: Final = 1e9
_MOST_SCALE: Final = 1e18
_LONGEST_S: Final = 1e9
_SIZE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class Library(StrEnum):
    """Library that an implementation uses; a container's entry is an image, all others' a `module:function`."""

    NUMPY = "numpy"
    SCIPY = "scipy"
    TORCH = "torch"
    DUCKDB = "duckdb"
    PYTHON = "python"
    CONTAINER = "container"


class Prepared(Protocol):
    """A kernel that is ready to run at some sizes; making it is not timed, `run` is.

    `run` takes the means of its predecessors' outputs, in the order of the links, and returns its output: a number, or
    an array of numpy or torch. Where they do not fit its shape it folds them into its data, so that the data link is
    real. `accuracy` returns the relative error of the last run's output against its known true value.
    """

    def run(self, inputs: tuple[float | NDArray[np.float64], ...]) -> Any: ...  # noqa: ANN401, D102

    def accuracy(self, output: Any) -> float: ...  # noqa: ANN401, D102


@dataclass(frozen=True, slots=True)
class Implementation:
    """A kernel's code for a kind of device; `entry` is `module:function` of `make(sizes, seed)`, or an image.

    `threads` marks code that itself uses all threads available to it (BLAS, torch); other code is divided over
    processes if its kernel says how (`ProbeKernel.splits`).
    """

    device: DeviceKind
    library: Library
    entry: str
    threads: bool = False


@dataclass(frozen=True, slots=True)
class ProbeKernel:
    """An operator that dominates the cost of some class of tasks.

    `operator` is the kind in controller.cluster.operators.KINDS that it stands for, or another word. `sizes` are those
    it runs at unless a use overrides them. `tolerance` is the relative error against the true value up to which an
    output counts as right, and `truth` describes that value in one line. `splits` are the sizes, separated by blanks,
    that are divided where several processes share the work, '' if the work cannot be divided. `code` is a normalised
    syntax tree, for matching.
    """

    identifier: str
    version: int
    category: str
    operator: str
    number_format: NumberFormat | None
    sizes: Sizes
    implementations: tuple[Implementation, ...]
    tolerance: float
    code: str = ""
    splits: str = ""
    truth: str = ""

    def __post_init__(self) -> None:
        if not _IDENTIFIER.fullmatch(self.identifier):
            raise ProbeKernelError(f"{self.identifier!r} is not a kernel identifier: a-z, 0-9 and -", at="identifier")
        for name, word in (("category", self.category), ("operator", self.operator)):
            if not _SIZE.fullmatch(word):
                raise ProbeKernelError(
                    f"kernel {self.identifier}: {word!r} is not a valid {name}: a-z, 0-9, - and _", at=name
                )
        if self.version < 1:
            raise ProbeKernelError(f"kernel {self.identifier}: version {self.version} is below 1", at="version")
        if not 0 <= self.tolerance < math.inf:
            raise ProbeKernelError(f"kernel {self.identifier}: tolerance is {self.tolerance}", at="tolerance")
        if not self.implementations:
            raise ProbeKernelError(f"kernel {self.identifier}: no implementation", at="implementations")
        _check_sizes(f"kernel {self.identifier}", self.sizes)
        if strange := set(self.splits.split()) - dict(self.sizes).keys():
            raise ProbeKernelError(
                f"kernel {self.identifier}: splits {min(strange)}, which is not one of its sizes", at="splits"
            )

    def implementation(self, device: DeviceKind, library: Library | None = None) -> Implementation | None:
        """Return a library's implementation for a kind of device, by default the first; None if there is none."""
        of_device = [implementation for implementation in self.implementations if implementation.device is device]
        return next(
            (implementation for implementation in of_device if implementation.library is library),
            of_device[0] if of_device else None,
        )


@dataclass(frozen=True, slots=True)
class Match:
    """Match of a target's operator in the library: `kernel` is None for no match, which is a valid answer.

    `similarity` is that of the best kernel, 0 to 1. `sizes` are the kernel's that stand for the operator's shape.
    `scale` is the work of an execution in the target over that of one at these sizes (1 if the sizes are the target's).
    `reason` gives the basis of the decision in one line, `library` is what the target computes with, if known.
    """

    operator: str
    kernel: ProbeKernel | None
    similarity: float
    sizes: Sizes = ()
    scale: float = 1.0
    reason: str = ""
    library: Library | None = None


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A kernel within a probe task: `repetitions` runs at `sizes`, for `executions` of `operator` in the target.

    It carries all that a runner needs: `implementation`, the `tolerance` above which its output is wrong, and the sizes
    that `splits` names. `scale` is as in Match. `operator` is '' and `executions` equals `repetitions` if an expert
    wrote it without a target.
    """

    name: str
    kernel: str
    version: int
    sizes: Sizes
    repetitions: int
    executions: int
    implementation: Implementation
    tolerance: float
    operator: str = ""
    scale: float = 1.0
    splits: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ProbeError(f"{self.name!r} is not a valid name of a use: a-z, 0-9, . and -", at="name")
        if not _IDENTIFIER.fullmatch(self.kernel):
            raise ProbeError(f"{self.name}: {self.kernel!r} is not a kernel identifier", at="kernel")
        if not 1 <= self.repetitions <= MOST_REPETITIONS:
            problem = f"{self.name}: {self.repetitions} repetitions, not between 1 and {MOST_REPETITIONS}"
            raise ProbeError(problem, at="repetitions")
        for name, value in (("version", self.version), ("executions", self.executions)):
            if not 1 <= value <= MAX_SIZE:
                raise ProbeError(f"{self.name}: {name} is {value}, not between 1 and 2^53", at=name)
        if not 0 <= self.tolerance <= _MOST_TOLERANCE:
            raise ProbeError(f"{self.name}: tolerance is {self.tolerance}", at="tolerance")
        if not 0 < self.scale <= _MOST_SCALE:
            raise ProbeError(f"{self.name}: scale is {self.scale}", at="scale")
        for name, line in (("operator", self.operator), ("implementation.entry", self.implementation.entry)):
            if len(line) > LONGEST_LINE:
                raise ProbeError(f"{self.name}: longer than {LONGEST_LINE} characters", at=name)
        _check_sizes(self.name, self.sizes)
        if strange := set(self.splits.split()) - dict(self.sizes).keys():
            raise ProbeError(f"{self.name}: splits {min(strange)}, which is not one of its sizes", at="splits")

    @property
    def device(self) -> DeviceKind:
        """Device kind that it runs on."""
        return self.implementation.device


@dataclass(frozen=True, slots=True)
class Link:
    """Link that makes use `src`'s mean output an input of use `dst`."""

    src: str
    dst: str


@dataclass(frozen=True, slots=True)
class TargetRun:
    """CPU time of target and kernels in one place, on one core: all executions of the target, and the probe's kernels.

    `cpu_time_s` excludes the start of a process, `kernels_s` are seconds of one execution by use, sorted by name.
    """

    cpu_time_s: float
    kernels_s: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        for name, value in (("cpu_time_s", self.cpu_time_s), *self.kernels_s):
            if not 0 < value <= _LONGEST_S:
                raise ProbeError(f"{name} takes {value} s", at="reference")
        if list(self.kernels_s) != sorted(dict(self.kernels_s).items()):
            raise ProbeError("uses must be unique and sorted by name", at="reference.kernels_s")


@dataclass(frozen=True)
class ProbeTask:
    """A probe task: uses of kernels and the acyclic links between them; raises ProbeError if invalid.

    `target` is the graph that it was built from, '' if an expert wrote it. `ratio` are executions in the target per
    repetition. `unmatched` are the target's operators that no kernel resembles, and `share_matched` is the others' part
    of the target's time (or work), None if unknown. `seed` makes every kernel's data. `reference` are the times of
    target and probe measured where it was built.
    """

    name: str
    category: str
    uses: tuple[KernelUse, ...]
    links: tuple[Link, ...] = ()
    task_type: str = ""
    target: str = ""
    ratio: int = 1000
    unmatched: tuple[str, ...] = ()
    share_matched: float | None = None
    seed: int = 0
    format_version: int = FORMAT_VERSION
    reference: TargetRun | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ProbeError(f"{self.name!r} is not a valid name of a probe task: a-z, 0-9, . and -", at="name")
        if not _SIZE.fullmatch(self.category):
            raise ProbeError(
                f"{self.name}: {self.category!r} is not a valid category: a-z, 0-9, - and _", at="category"
            )
        if not 1 <= len(self.uses) <= MOST_USES:
            raise ProbeError(f"{self.name}: {len(self.uses)} uses of kernels, not between 1 and {MOST_USES}", at="uses")
        for name, value, least in (("ratio", self.ratio, 1), ("seed", self.seed, 0)):
            if not least <= value <= MAX_SIZE:
                raise ProbeError(f"{self.name}: {name} is {value}, not between {least} and 2^53", at=name)
        if self.task_type and not _NAME.fullmatch(self.task_type):
            raise ProbeError(
                f"{self.name}: {self.task_type!r} is not a valid task type: a-z, 0-9, . and -", at="task_type"
            )
        if self.share_matched is not None and not 0 <= self.share_matched <= 1:
            raise ProbeError(
                f"{self.name}: share_matched is {self.share_matched}, not between 0 and 1", at="share_matched"
            )
        if self.format_version != FORMAT_VERSION:
            problem = f"{self.name}: unknown format {self.format_version}; known: {FORMAT_VERSION}"
            raise ProbeError(problem, at="format_version")
        if max(map(len, (self.target, *self.unmatched))) > LONGEST_LINE or len(self.unmatched) > MOST_UNMATCHED:
            raise ProbeError(f"{self.name}: longer than {LONGEST_LINE} characters, or too many", at="unmatched")
        self._check_links()
        if self.reference is not None and dict(self.reference.kernels_s).keys() != self.use.keys():
            raise ProbeError(f"{self.name}: its reference does not cover its uses", at="reference.kernels_s")

    def _check_links(self) -> None:
        if len(self.links) > MOST_LINKS:
            raise ProbeError(f"{self.name}: {len(self.links)} links, at most {MOST_LINKS} allowed", at="links")
        seen: set[object] = set()
        for index, use in enumerate(self.uses):
            if use.name in seen:
                raise ProbeError(f"{self.name}: duplicate use {use.name}", at=f"uses[{index}].name")
            seen.add(use.name)
        for index, link in enumerate(self.links):
            for side, end in (("src", link.src), ("dst", link.dst)):
                if end not in self.use:
                    raise ProbeError(f"{self.name}: no use {end}", at=f"links[{index}].{side}")
            if link in seen:
                raise ProbeError(f"{self.name}: duplicate link {link.src} -> {link.dst}", at=f"links[{index}]")
            seen.add(link)
        if len(self.order) < len(self.uses):
            waiting = sorted(self.use.keys() - set(self.order))
            raise ProbeError(f"{self.name}: data flows in a cycle: {', '.join(waiting[:3])}", at="links")

    @cached_property
    def use(self) -> Mapping[str, KernelUse]:
        """Uses by name."""
        return {use.name: use for use in self.uses}

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """Sources of each use, in the order of the links."""
        feeds: dict[str, list[str]] = {name: [] for name in self.use}
        for link in self.links:
            feeds[link.dst].append(link.src)
        return {name: tuple(names) for name, names in feeds.items()}

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The uses, each after all that feed it, otherwise in the task's order; those in a cycle are left out."""
        waiting = {name: len(names) for name, names in self.sources.items()}
        readers: dict[str, list[str]] = {name: [] for name in self.use}
        for link in self.links:
            readers[link.src].append(link.dst)
        ready = [name for name, count in waiting.items() if count == 0]
        for name in ready:
            for reader in readers[name]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready.append(reader)
        return tuple(ready)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The uses in groups that no link joins, each group in `order`."""
        group = {name: {name} for name in self.use}
        for link in self.links:
            joined = group[link.src] | group[link.dst]
            for name in joined:
                group[name] = joined
        groups: dict[frozenset[str], list[str]] = {}
        for name in self.order:
            groups.setdefault(frozenset(group[name]), []).append(name)
        return tuple(tuple(names) for names in groups.values())

    @property
    def kernels(self) -> tuple[str, ...]:
        """Identifiers of its kernels, once each, sorted."""
        return tuple(sorted({use.kernel for use in self.uses}))


def sizes_of(sizes: Mapping[str, int]) -> Sizes:
    """Return sizes by name in the form that these values hold."""
    return tuple(sorted(sizes.items()))


def _check_sizes(owner: str, sizes: Sequence[tuple[str, int]]) -> None:
    if len(sizes) > MOST_SIZES:
        raise ProbeError(f"{owner}: {len(sizes)} sizes, at most {MOST_SIZES} allowed", at="sizes")
    for name, size in sizes:
        if not _SIZE.fullmatch(name):
            raise ProbeError(f"{owner}: {name!r} is not a valid name of a size: a-z, 0-9, - and _", at=f"sizes.{name}")
        if not 0 <= size <= MAX_SIZE:
            raise ProbeError(f"{owner}: {name} is {size}, not between 0 and 2^53", at=f"sizes.{name}")
    if list(sizes) != sorted(dict(sizes).items()):
        raise ProbeError(f"{owner}: sizes must be unique and sorted by name", at="sizes")
