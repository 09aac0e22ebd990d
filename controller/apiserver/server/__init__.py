"""The API server over HTTP: Litestar's routes behind a gate that knows who calls and what is too much."""

from __future__ import annotations
