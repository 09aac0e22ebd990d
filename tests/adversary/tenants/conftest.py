"""The API's server, for attacks on it."""

from __future__ import annotations

from tests.controller.api.conftest import play

__all__ = ["play"]
