"""Who calls a service of ours, and what he may do: roles, bearer tokens, certificates; no socket here."""

from __future__ import annotations

from dataplane.rpc.access.values import Principal, Right, Role

__all__ = ["Principal", "Right", "Role"]
