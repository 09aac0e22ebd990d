"""Resources in the storage: read, write, bind, watch; no HTTP."""

from __future__ import annotations
