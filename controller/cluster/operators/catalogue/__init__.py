"""Known operator kinds, by the data they work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.cluster.operators.catalogue.factorisations import FACTORISATIONS
from controller.cluster.operators.catalogue.memory import MEMORY
from controller.cluster.operators.catalogue.numbers import NUMBERS
from controller.cluster.operators.catalogue.tables import TABLES
from controller.cluster.operators.counting import Kind

ALL: Final[Mapping[str, Kind]] = {**NUMBERS, **FACTORISATIONS, **MEMORY, **TABLES}

__all__ = ["ALL"]
