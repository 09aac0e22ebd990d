"""`millrace probe kernels run`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from controller.apps.cli.cluster.api import Address
from controller.apps.cli.probe.library import library_of
from controller.apps.cli.shared.output import Format, FormatOption, show
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.probing.kernels.loading import Checked
    from controller.probing.values import ProbeKernel, Sizes

E = TypeVar("E", bound=StrEnum)


def run(  # noqa: PLR0917 - a command line's options
    name: Annotated[
        str, typer.Argument(metavar="KERNEL[.VERSION]", help="Kernel as in `millrace probe kernels list`.")
    ],
    size: Annotated[list[str] | None, typer.Option(metavar="NAME=N", help="Override a size; repeatable.")] = None,
    repeat: Annotated[int, typer.Option(min=1, max=100_000, help="Number of runs.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or gpu.")] = "cpu",
    library: Annotated[str | None, typer.Option(help="numpy, scipy, torch, ...; default: its first.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of its data.")] = 0,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """Run a probe kernel here; show time, rate and error of the result."""
    from contextlib import closing  # noqa: PLC0415

    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415
    from controller.probing.library import choose, prepare, sizes_for  # noqa: PLC0415
    from controller.probing.values import Library  # noqa: PLC0415
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    kernel = library_of(address).named(name)
    wanted = _sizes(size or ())
    on, by = _one_of(DeviceKind, device, "device"), None if library is None else _one_of(Library, library, "library")
    with closing(prepare(kernel, wanted, seed, device=on, library=by)) as prepared:
        times_s, errors = _measured(prepared, repeat)
        figures = prepared.figures()
    rows = _rows(kernel, sizes_for(kernel, wanted), times_s, errors)
    rows += [(f"last {name.replace('_', ' ')}", value) for name, value in figures.items()]
    rows.insert(1, ("on", f"{on.value}, {choose(kernel, on, by).library.value}"))
    show(("what", "value"), rows, form)
    if max(errors) > kernel.tolerance:
        owner = f"kernel {kernel.identifier}.{kernel.version}"
        raise ProbeKernelError(f"{owner}: error {max(errors):.3g} is above its tolerance of {kernel.tolerance:.3g}")


def _measured(prepared: Checked, repeat: int) -> tuple[list[float], list[float]]:
    """Return the seconds and the error of each run, after an untimed one."""
    prepared.run(())
    times_s, errors = [], []
    for _ in range(repeat):
        begun_s = time.perf_counter()
        output = prepared.run(())
        times_s.append(time.perf_counter() - begun_s)
        errors.append(prepared.accuracy(output))
    return times_s, errors


def _rows(kernel: ProbeKernel, sizes: Sizes, times_s: list[float], errors: list[float]) -> list[tuple[str, object]]:
    from controller.cluster.operators import Operator, work_of  # noqa: PLC0415

    work = work_of(Operator(kernel.identifier, kernel.operator, sizes, kernel.number_format))
    best_s = min(times_s)
    rows: list[tuple[str, object]] = [
        ("kernel", f"{kernel.identifier}.{kernel.version} {' '.join(f'{name}={size}' for name, size in sizes)}"),
        ("mean time", _seconds(fmean(times_s)) + (f" +- {_seconds(stdev(times_s))}" if len(times_s) > 1 else "")),
        ("best time", _seconds(best_s)),
    ]
    if work is not None and work.operations:
        rows.append(("best rate", f"{work.operations / best_s / 1e9:.4g} G{work.unit}/s ({work.counting.value} count)"))
    if work is not None:
        nbytes = work.read_bytes + work.written_bytes
        rows.append(("best traffic", f"{nbytes / best_s / 1e9:.4g} GB/s (compulsory)"))
    rows.append(("worst error", f"{max(errors):.3g} (tolerance {kernel.tolerance:.3g})"))
    rows.append(("true value", kernel.truth))
    return rows


def _seconds(value_s: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value_s * scale >= 1:
            return f"{value_s * scale:.4g} {unit}"
    return f"{value_s * NS_PER_S:.4g} ns"


def _sizes(words: Sequence[str]) -> dict[str, int]:
    """Parse sizes NAME=N; raise ProbeKernelError for an invalid one."""
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415

    sizes = {}
    for word in words:
        name, equals, number = word.partition("=")
        if not (name and equals and number.isascii() and number.isdecimal()):
            raise ProbeKernelError(f"--size {word}: expected NAME=N, N a whole number")
        sizes[name] = int(number)
    return sizes


def _one_of(kind: type[E], word: str, switch: str) -> E:
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415

    try:
        return kind(word)
    except ValueError:
        raise ProbeKernelError(f"--{switch} {word}: expected {', '.join(member.value for member in kind)}") from None
