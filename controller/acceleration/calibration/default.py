"""Default calibration without measurements: another machine's fits, and the acceleration model's own figures.

Times that follow from it are nominal. default.json is the output of `millrace accel measure` with three repetitions on
two cores of an otherwise idle AMD EPYC server, with DuckDB, numpy and scipy: the shortest run of each size, the highest
of each rate. The GPU's figures are those of the model's specification: 12.8 GB/s measured over PCIe 3.0 x16,
parallelism 64, compression to 0.3 at 0.1 GB/s.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from controller.acceleration.calibration.calibration import Calibration
from controller.acceleration.calibration.files import load
from controller.cluster.estimates import Basis

DEFAULT: Final[Calibration] = replace(load(Path(__file__).with_name("default.json")), basis=Basis.NOMINAL)
