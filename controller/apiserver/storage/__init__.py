"""Versioned keys with revisions, transactions, leases and watches: SQLite by default, etcd if servers share it."""

from __future__ import annotations

from controller.apiserver.storage.base import Storage
from controller.apiserver.storage.values import (
    ABSENT,
    Change,
    Delete,
    Event,
    EventKind,
    Expected,
    Lease,
    Page,
    Put,
    Stored,
)

__all__ = [
    "ABSENT",
    "Change",
    "Delete",
    "Event",
    "EventKind",
    "Expected",
    "Lease",
    "Page",
    "Put",
    "Storage",
    "Stored",
]
