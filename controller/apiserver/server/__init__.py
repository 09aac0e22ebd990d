"""The API server over HTTP: Litestar routes behind a gate that authenticates callers and limits load."""

from __future__ import annotations
