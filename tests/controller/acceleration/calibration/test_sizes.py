"""Sizes beyond the caches: fitted from runs of all kinds; times are continuous, monotonic and within their bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from controller.acceleration.calibration import (
    DEFAULT,
    Calibration,
    CalibrationError,
    Run,
    dumps,
    loads,
)
from controller.acceleration.calibration.features import TOUCHED, features_of
from controller.acceleration.calibration.fitting import fit
from controller.acceleration.calibration.sizes import cached_bytes_of, uncached_of
from controller.acceleration.calibration.values import Uncached
from controller.cluster.operators import Operator
from dataplane.errors import ConfigError
from dataplane.topology.values import NumberFormat

CACHED = 2.0**24
SIZES = tuple(2**half for half in range(12, 25))


def scan_of(rows: int) -> Operator:
    return Operator.of("s", "table-scan", {"rows": rows, "row_bytes": 16})


def add_of(n: int) -> Operator:
    return Operator.of("e", "elementwise", {"n": n, "operands": 2}, NumberFormat.FP64)


def runs_of(operators: Sequence[Operator], penalty: float, noise: float = 0.0, seed: int = 1) -> list[Run]:
    """Return runs of 0.1 ms and 0.2 ns per byte touched; bytes beyond the caches cost `penalty` times more."""
    generator, runs = np.random.default_rng(seed), []
    for operator in operators:
        features = features_of(operator)
        touched = features[TOUCHED]
        seconds = 1e-4 + 2e-10 * (touched + penalty * max(touched - CACHED, 0.0))
        runs.append(Run(features, seconds * math.exp(noise * generator.standard_normal())))
    return runs


def test_cache_size_is_common_and_the_penalty_is_per_kind() -> None:
    scans, additions = runs_of([*map(scan_of, SIZES)], 2.0), runs_of([*map(add_of, SIZES)], 0.5)
    cached = cached_bytes_of([("table-scan", scans), ("elementwise", additions)])
    assert cached == pytest.approx(CACHED)
    for kind, runs, penalty in (("table-scan", scans, 2.0), ("elementwise", additions, 0.5)):
        fitted = fit(kind, runs, cached_bytes=cached)
        assert fitted.uncached == Uncached(CACHED, penalty, runs[-1].features[TOUCHED])
        assert fitted.residual < 1e-6
        assert fitted.degrees == len(SIZES) - 2 - 2  # cache size and penalty are fitted from the runs, too
        assert fit(kind, runs).residual > 0.1


def test_a_straight_line_is_left_alone() -> None:
    exact, noisy = (runs_of([*map(scan_of, SIZES)], 0.0, noise) for noise in (0.0, 0.05))
    for runs in (exact, noisy):
        assert cached_bytes_of([("table-scan", runs)]) is None
        assert fit("table-scan", runs, cached_bytes=CACHED).uncached is None
    small = runs_of([*map(scan_of, SIZES[:4])], 2.0)  # all within the caches
    assert cached_bytes_of([("table-scan", small)]) is None


def test_sizes_that_are_too_few_are_not_corrected() -> None:
    few = runs_of([*map(scan_of, (2**12, 2**21, 2**24))], 8.0)
    assert uncached_of("table-scan", few, CACHED) is None
    fitted = fit("table-scan", few, cached_bytes=CACHED)
    assert (fitted.runs, fitted.uncached) == (3, None)
    more = runs_of([*map(scan_of, (2**12, 2**16, 2**18, 2**21, 2**24))], 8.0)
    assert fit("table-scan", more, cached_bytes=CACHED).uncached is not None


def test_bounds_cover_new_runs_on_both_sides_of_the_caches() -> None:
    held, new = 0, [scan_of(rows) for rows in (3 * 2**11, 3 * 2**16, 3 * 2**18, 3 * 2**21)]
    for seed in range(60):
        fitted = fit("table-scan", runs_of([*map(scan_of, SIZES)], 2.0, 0.1, seed), cached_bytes=CACHED)
        calibration = Calibration("m", 1, fits=(fitted,))
        for operator, run in zip(new, runs_of(new, 2.0, 0.1, 1000 + seed), strict=True):
            low, _, high = calibration.time_of(operator).times
            held += low <= run.seconds <= high
    assert 0.92 <= held / 240 <= 0.99


def test_times_grow_with_data_without_jumps_at_cache_sizes() -> None:
    corrected = [fitted for fitted in DEFAULT.fits if fitted.uncached is not None]
    assert {fitted.kind for fitted in corrected} >= {"filter", "join", "aggregate", "table-scan", "stencil"}
    shapes = {
        "filter": {"rows": 4, "row_bytes": 16, "kept_rows": 1},
        "join": dict.fromkeys(("left_rows", "right_rows", "out_rows"), 2)
        | dict.fromkeys(("left_row_bytes", "right_row_bytes", "out_row_bytes"), 16),
        "aggregate": {"rows": 8, "row_bytes": 16, "groups": 1, "group_bytes": 16},
        "table-scan": {"rows": 1, "row_bytes": 32},
        "project": {"rows": 1, "row_bytes": 16, "expressions": 4},
        "sort": {"rows": 1, "row_bytes": 32},
    }
    for kind, shape in shapes.items():
        growing = [size for size in shape if size.endswith(("rows", "groups"))]
        many = np.unique(np.geomspace(1e3, 1e8, 4000).round()).astype(int).tolist()
        operators = [Operator.of(kind, kind, shape | {size: shape[size] * n for size in growing}) for n in many]
        seconds = np.array([DEFAULT.time_of(operator).seconds for operator in operators])
        assert (np.diff(seconds) >= 0).all(), kind
        steps = np.diff(seconds) / seconds[:-1] / (np.diff(many) / np.array(many[:-1]))
        assert steps.max() < 4, kind  # relative to the growth of the data: a bend, not a step


def test_version_1_file_has_no_corrections_and_version_2_has() -> None:
    fitted = fit("table-scan", runs_of([*map(scan_of, SIZES)], 2.0), library="duckdb", cached_bytes=CACHED)
    calibration = Calibration("m", 1, fits=(fitted,))
    for as_json in (True, False):
        text = dumps(calibration, as_json=as_json)
        assert loads(text, as_json=as_json) == calibration
        old = text.replace('"millrace": 2', '"millrace": 1').replace("millrace: 2", "millrace: 1")
        with pytest.raises(ConfigError, match=r"fits\[0\]\.uncached: size corrections need version 2"):
            loads(old, as_json=as_json)
    with pytest.raises(ConfigError, match=r"fits\[0\]\.uncached\.penalty: penalty is -1.0, not above 0"):
        loads(dumps(calibration).replace("penalty: 2.0", "penalty: -1.0"))
    with pytest.raises(CalibrationError, match="cached_bytes is inf"):
        Uncached(math.inf, 1.0, 1.0)
    plain = dumps(Calibration("m", 1, fits=(fit("table-scan", runs_of([*map(scan_of, SIZES)], 0.0)),)))
    assert loads(plain.replace("millrace: 2", "millrace: 1")) == loads(plain)
