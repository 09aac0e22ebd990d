"""Databases that are closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from controller.network.paths.records.database import open_path_database
from dataplane.database import Database


@pytest.fixture
def open_database() -> Iterator[Callable[[str], Database]]:
    with ExitStack() as opened:
        yield lambda path: opened.enter_context(closing(open_path_database(path)))
