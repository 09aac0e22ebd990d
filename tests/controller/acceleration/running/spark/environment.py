"""Spark for tests: that of `make .venv-spark/.ready`, or of this environment; without it tests are skipped by name."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.spark.software import java_home

_ROOT = Path(__file__).parents[5]


@contextmanager
def with_spark() -> Iterator[None]:
    """Have pyspark importable, in processes that are started as well; skip the test without it or without Java."""
    found = _packages()
    if found is None and importlib.util.find_spec("pyspark") is None:
        pytest.skip("Spark needs an environment of its own: make .venv-spark/.ready")
    try:
        java_home()
    except RunError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        if found is not None:
            patch.syspath_prepend(str(found))
            patch.setenv("PYTHONPATH", str(found))
        yield


def is_there() -> bool:
    """Return whether Spark is there, and Java."""
    try:
        java_home()
    except RunError:
        return False
    return _packages() is not None or importlib.util.find_spec("pyspark") is not None


def _packages() -> Path | None:
    folder = Path(os.environ.get("MILLRACE_SPARK_FOLDER", _ROOT / ".venv-spark"))
    found = next(folder.glob("lib/python3*/site-packages/pyspark"), None)
    return None if found is None else found.parent
