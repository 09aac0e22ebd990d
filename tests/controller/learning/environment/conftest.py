"""Either twin of the pool."""

from __future__ import annotations

import pytest

from tests.controller.learning.environment.pools import MAKERS, Maker


@pytest.fixture(params=list(MAKERS.values()), ids=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Maker:
    maker: Maker = request.param
    return maker
