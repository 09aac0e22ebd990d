"""Calibration files, YAML or JSON: strict parsing, with file, line and key in each error, and serialisation.

Figures are `{value, low, high, basis, reasons}`; rates are per second. Omitted values are unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from controller.acceleration.calibration.calibration import Calibration
from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.values import Figure, Fit, Rates, Uncached
from controller.cluster.estimates import Basis
from dataplane.config import Document, Strict, load_document, loads_document
from dataplane.topology.values import DeviceKind, NumberFormat

T = TypeVar("T")
_SHARES: Final = frozenset({"attained", "parallelism"})


class FigureSpec(Strict, frozen=True):
    """A figure; without bounds its error is unknown."""

    value: float
    low: float | None = None
    high: float | None = None
    basis: Basis = Basis.MEASURED
    reasons: list[str] = msgspec.field(default_factory=list)


class CompressionSpec(Strict, frozen=True):
    """Compressed over plain size, and the bytes per second at which the device compresses and decompresses."""

    ratio: float
    bytes_per_s: float


class DeviceSpec(Strict, frozen=True):
    """A device's rates; `operations_per_s` by number format."""

    device: DeviceKind
    model: str = ""
    memory_bytes_per_s: FigureSpec | None = None
    bus_bytes_per_s: FigureSpec | None = None
    operations_per_s: dict[NumberFormat, FigureSpec] = msgspec.field(default_factory=dict)
    attained: FigureSpec | None = None
    parallelism: FigureSpec | None = None
    compression: CompressionSpec | None = None


class UncachedSpec(Strict, frozen=True):
    """A size correction: the bytes that caches hold, the penalty per byte beyond, and the most that a run touched."""

    cached_bytes: float
    penalty: float
    most_bytes: float


class FitSpec(Strict, frozen=True):
    """A fit: seconds are the sum of features times coefficients; errors are relative. `uncached` is from version 2."""

    device: DeviceKind
    kind: str
    features: list[str]
    coefficients: list[float]
    covariance: list[list[float]]
    residual: float
    runs: int
    least: list[float]
    most: list[float]
    library: str = ""
    format: NumberFormat | None = None
    uncached: UncachedSpec | None = None


class CalibrationFile(Strict, frozen=True):
    """A file; `millrace` is the version of the format: 1 has no size corrections."""

    millrace: Literal[1, 2]
    machine: str
    cores: int
    source: str = ""
    devices: list[DeviceSpec] = msgspec.field(default_factory=list)
    fits: list[FitSpec] = msgspec.field(default_factory=list)


def load(path: Path) -> Calibration:
    """Return the calibration in a file; raise ConfigError with file, line and key."""
    return _resolve(load_document(path, CalibrationFile))


def loads(text: str, *, file: str = "<text>", as_json: bool = False) -> Calibration:
    """Return the calibration in YAML text, or in JSON; raise ConfigError with file, line and key."""
    return _resolve(loads_document(text, CalibrationFile, file=file, as_json=as_json))


def save(calibration: Calibration, path: Path) -> None:
    """Write a calibration to a file, YAML or .json; raise CalibrationError, with the file, on failure."""
    try:
        path.write_text(dumps(calibration, as_json=path.suffix == ".json"), encoding="utf-8")
    except OSError as error:
        raise CalibrationError(f"{path}: {error.strerror or 'cannot be written'}") from None


def dumps(calibration: Calibration, *, as_json: bool = False) -> str:
    """Return the calibration as text that `loads` reads back as an equal value."""
    document = {
        "millrace": 2,
        "machine": calibration.machine,
        "cores": calibration.cores,
        "source": calibration.source,
        "devices": [_device_document(rates) for rates in calibration.rates],
        "fits": [_fit_document(fit) for fit in calibration.fits],
    }
    if as_json:
        return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
    import yaml  # noqa: PLC0415 - only needed for writing

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return text


def _resolve(document: Document[CalibrationFile]) -> Calibration:
    spec = document.value

    def at(path: str, make: Callable[[], T]) -> T:
        try:
            return make()
        except CalibrationError as error:
            raise document.error(error.problem, f"{path}.{error.at}".strip(".")) from None

    for index, fit in enumerate(spec.fits):
        if spec.millrace == 1 and fit.uncached is not None:
            raise document.error("size corrections need version 2 (millrace: 2)", f"fits[{index}].uncached")
    rates = tuple(_rates(device, f"devices[{index}]", at) for index, device in enumerate(spec.devices))
    fits = tuple(at(f"fits[{index}]", lambda fit=fit: _fit(fit)) for index, fit in enumerate(spec.fits))  # type: ignore[misc]
    return at("", lambda: Calibration(spec.machine, spec.cores, rates, fits, spec.source))


def _rates(spec: DeviceSpec, path: str, at: Callable[[str, Callable[[], Any]], Any]) -> Rates:
    values: dict[str, Any] = {}
    for name in ("memory_bytes_per_s", "bus_bytes_per_s", "attained", "parallelism"):
        if (figure := getattr(spec, name)) is not None:
            values[name] = at(f"{path}.{name}", lambda figure=figure: _figure(figure))  # type: ignore[misc]
    operations = {
        number_format: at(f"{path}.operations_per_s.{number_format}", lambda figure=figure: _figure(figure))  # type: ignore[misc]
        for number_format, figure in spec.operations_per_s.items()
    }
    compression = None
    if (given := spec.compression) is not None:
        compression = at(f"{path}.compression", lambda: _compression(given))
    return Rates(spec.device, spec.model, operations_per_s=operations, compression=compression, **values)


def _figure(spec: FigureSpec) -> Figure:
    low = spec.value if spec.low is None else spec.low
    high = spec.value if spec.high is None else spec.high
    if not (math.isfinite(spec.value) and spec.value > 0 and low > 0):
        raise CalibrationError(f"{spec.value} (at least {low}) is not above 0 and finite", at="value")
    return Figure(spec.value, low, high, spec.basis, tuple(spec.reasons))


def _compression(spec: CompressionSpec) -> tuple[float, float]:
    if not 0 < spec.ratio <= 1:
        raise CalibrationError(f"{spec.ratio} is not above 0 and at most 1", at="ratio")
    if not (math.isfinite(spec.bytes_per_s) and spec.bytes_per_s > 0):
        raise CalibrationError(f"{spec.bytes_per_s} is not above 0 and finite", at="bytes_per_s")
    return spec.ratio, spec.bytes_per_s


def _fit(spec: FitSpec) -> Fit:
    return Fit(
        spec.device,
        spec.library,
        spec.kind,
        spec.format,
        tuple(spec.features),
        tuple(spec.coefficients),
        tuple(map(tuple, spec.covariance)),
        spec.residual,
        spec.runs,
        tuple(spec.least),
        tuple(spec.most),
        None if (given := spec.uncached) is None else Uncached(given.cached_bytes, given.penalty, given.most_bytes),
    )


def _device_document(rates: Rates) -> dict[str, Any]:
    document: dict[str, Any] = {"device": rates.device.value, "model": rates.model}
    for name in ("memory_bytes_per_s", "bus_bytes_per_s"):
        if (figure := getattr(rates, name)) is not None:
            document[name] = _figure_document(figure)
    document["operations_per_s"] = {
        number_format.value: _figure_document(figure) for number_format, figure in rates.operations_per_s.items()
    }
    for name in sorted(_SHARES):
        if (figure := getattr(rates, name)) is not None:
            document[name] = _figure_document(figure)
    if rates.compression is not None:
        document["compression"] = dict(zip(("ratio", "bytes_per_s"), rates.compression, strict=True))
    return document


def _figure_document(figure: Figure) -> Mapping[str, Any]:
    low, value, high = figure.numbers
    return {"value": value, "low": low, "high": high, "basis": figure.basis.value, "reasons": list(figure.reasons)}


def _fit_document(fit: Fit) -> dict[str, Any]:
    return {
        "device": fit.device.value,
        "library": fit.library,
        "kind": fit.kind,
        "format": fit.number_format and fit.number_format.value,
        "runs": fit.runs,
        "residual": fit.residual,
        "features": list(fit.features),
        "coefficients": list(fit.coefficients),
        "covariance": [list(row) for row in fit.covariance],
        "least": list(fit.least),
        "most": list(fit.most),
        **({} if fit.uncached is None else {"uncached": asdict(fit.uncached)}),
    }
