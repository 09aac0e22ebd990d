"""The API's server, for attacks on it."""

from __future__ import annotations

from tests.controller.apiserver.conftest import play

__all__ = ["play"]
