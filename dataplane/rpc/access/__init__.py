"""Authentication and authorisation of callers: roles, bearer tokens, certificates; no sockets here."""

from __future__ import annotations

from dataplane.rpc.access.values import Principal, Right, Role

__all__ = ["Principal", "Right", "Role"]
