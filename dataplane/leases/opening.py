"""Opening of the storage that settings name."""

from __future__ import annotations

from dataplane.errors import MillraceError
from dataplane.leases.place import EtcdPlace
from dataplane.leases.sqlite import SqliteLeases
from dataplane.leases.storage import LeaseStorage


def open_leases(
    sqlite: str | None, etcd: EtcdPlace | None, timeout_s: float, error: type[MillraceError]
) -> LeaseStorage:
    """Open the one of both that is not None; raise `error` if that fails, as later calls do.

    Each call may take `timeout_s`.
    """
    if sqlite is not None:
        return SqliteLeases(sqlite, timeout_s, error)
    assert etcd is not None, "settings name one of the two"
    from dataplane.leases.etcd import EtcdLeases  # noqa: PLC0415 - an extra

    return EtcdLeases(etcd, timeout_s, error)
