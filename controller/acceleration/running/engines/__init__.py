"""Engines that compute a plan: one module each, with the same three steps."""

from __future__ import annotations

from controller.acceleration.running.engines.making import backend_of

__all__ = ["backend_of"]
