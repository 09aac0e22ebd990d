"""Resources in the storage: read, write, bind, watch; no HTTP here."""

from __future__ import annotations
