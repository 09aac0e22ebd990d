"""`millrace accel measure`: operator times of this machine's devices, written as a calibration."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.acceleration.calibration import Calibration
    from dataplane.topology.values import DeviceKind

_COLUMNS: Final = ("what", "on", "by", "sizes", "error %", "grows with")
_MAIN_COLUMNS: Final = ("rate", "of", "a second", "at least")


class Device(StrEnum):
    """Device to measure."""

    CPU = "cpu"
    GPU = "gpu"


class Code(StrEnum):
    """Libraries that operators are measured with."""

    DUCKDB = "duckdb"
    NUMPY = "numpy"
    SCIPY = "scipy"
    TORCH = "torch"


def measure(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The calibration, YAML or .json.")] = Path(
        "calibration.yaml"
    ),
    device: Annotated[
        list[Device] | None, typer.Option(help="Device to measure; default: the CPU, and the GPU if torch can use one.")
    ] = None,
    library: Annotated[
        list[Code] | None, typer.Option(help="Libraries; default: duckdb, numpy and scipy, and torch for the GPU.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, seconds: a smoke test.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run operators at several sizes, fit their times, and write t, M and the bus rate of this machine.

    Needs an otherwise idle machine; takes about a minute on two cores.
    """
    from controller.acceleration.calibration import save  # noqa: PLC0415
    from controller.acceleration.calibration.errors import CalibrationError  # noqa: PLC0415
    from controller.acceleration.calibration.measuring import measure as measured  # noqa: PLC0415
    from controller.probing.values import Library  # noqa: PLC0415
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    if not out.absolute().parent.is_dir():
        raise CalibrationError(f"{out}: no such folder: {out.absolute().parent}")
    devices = frozenset(map(DeviceKind, device)) if device else _usable_devices()
    if library:
        libraries = frozenset(map(Library, library))
    else:
        libraries = frozenset({Library.DUCKDB, Library.NUMPY, Library.SCIPY})
    if DeviceKind.GPU in devices:
        libraries |= {Library.TORCH}
    model, cores = _machine()
    calibration = measured(
        model,
        cores,
        devices,
        libraries,
        time.perf_counter_ns,
        is_quick=quick,
        source="measured by millrace accel measure" + (" --quick: sizes too small to rely on" if quick else ""),
        say=_print_progress if sys.stderr.isatty() else lambda _: None,
    )
    save(calibration, out)
    _show(calibration, form)
    typer.echo(f"wrote {out}", err=form is not Format.TABLE)


def _print_progress(line: str) -> None:
    typer.echo(f"measuring {line}", err=True)


def _usable_devices() -> frozenset[DeviceKind]:
    """Return the CPU, and the GPU if torch is installed and can use one."""
    import importlib.util  # noqa: PLC0415

    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    if importlib.util.find_spec("torch") is None:
        return frozenset({DeviceKind.CPU})
    import torch  # noqa: PLC0415 - takes seconds

    return frozenset({DeviceKind.CPU, DeviceKind.GPU} if torch.cuda.is_available() else {DeviceKind.CPU})


def _machine() -> tuple[str, int]:
    """Return the processor's model and how many cores this process may use."""
    from collectors.devices.discovery import discover  # noqa: PLC0415
    from collectors.devices.root import Root  # noqa: PLC0415

    machine = discover(Root(Path("/")), "NVML: not queried")
    return machine.processors.model or "a machine of unknown model", machine.cores or 1


def _show(calibration: Calibration, form: Format) -> None:
    if form is Format.TABLE:
        show(_MAIN_COLUMNS, list(_rates(calibration)), form)
    show(_COLUMNS, list(_fits(calibration)), form)


def _rates(calibration: Calibration) -> Iterator[Cells]:
    for rates in calibration.rates:
        operations = {str(number_format): figure for number_format, figure in rates.operations_per_s.items()}
        bytes_ = {"memory": rates.memory_bytes_per_s, "bus": rates.bus_bytes_per_s}
        for (name, figure), unit in [(pair, "GB") for pair in bytes_.items()] + [
            (pair, "Gop") for pair in operations.items()
        ]:
            if figure is not None:
                low, value, _ = figure.numbers
                yield name, str(rates.device), f"{value / 1e9:.4g} {unit}", f"{low / 1e9:.4g} {unit}"


def _fits(calibration: Calibration) -> Iterator[Cells]:
    from controller.acceleration.calibration.fitting import intervals  # noqa: PLC0415

    for fit in calibration.fits:
        parts = [
            f"{name.replace('_', ' ')}: {value:.3g} s ({low:.3g} to {high:.3g})"
            for name, (low, value, high) in zip(fit.features, intervals(fit), strict=True)
            if value > 0
        ]
        if fit.uncached is not None:
            parts.append(
                f"beyond {fit.uncached.cached_bytes / 1e6:.3g} MB, a byte {1 + fit.uncached.penalty:.3g} times as much"
            )
        kind = f"{fit.kind} {fit.number_format}" if fit.number_format else fit.kind
        yield kind, str(fit.device), fit.library, fit.runs, round(100 * fit.residual, 1), "; ".join(parts)
