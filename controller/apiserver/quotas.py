"""Quotas of projects, and of users without one: requests beyond them are refused before they are written.

A server counts its own writes at once, and other servers' once the storage's watch delivers them. So several servers
together can exceed a quota slightly, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.encoding import encode
from controller.apiserver.registry.tenancy.usage import excess, minus, plus, usage_of
from controller.apiserver.resources import Kind, Metadata
from controller.apiserver.resources.base import R
from controller.apiserver.resources.kind import Usage
from controller.apiserver.resources.project import PROJECT, Quota
from controller.common.errors import ForbiddenError, NotFoundError
from dataplane.rpc.access import Principal, Role


class Quotas:
    """Checks users' writes; not thread-safe: use it from one event loop."""

    def __init__(self, cache: ResourceCache, default: Quota) -> None:
        """`default` applies to accounts without a Project."""
        self._cache, self._default = cache, default
        self._promised: list[tuple[str, Usage, int | None]] = []
        """Pending writes by account, with the revision of each; None: not written yet."""

    @contextmanager
    def room(self, principal: Principal, kind: Kind[R], made: R) -> Iterator[Callable[[int], None]]:
        """Reserve room for a new resource; call the yielded function with the revision at which it was written.

        Raise ForbiddenError if there is none.
        """
        account, usage = made.metadata.account, usage_of(kind, made, len(encode(made)))
        self._check(principal, kind, made, usage)
        promise: tuple[str, Usage, int | None] = account, usage, None
        # Count it before it is written: concurrent requests must not share the same room.
        self._promised.append(promise)

        def written(revision: int) -> None:
            self._promised.append((account, usage, revision))

        try:
            yield written
        finally:
            self._promised.remove(promise)

    def check_change(self, principal: Principal, kind: Kind[R], before: R, made: R) -> None:
        """Raise ForbiddenError if a change needs more than the remaining quota."""
        added = minus(usage_of(kind, made, len(encode(made))), usage_of(kind, before, len(encode(before))))
        self._check(principal, kind, made, added)

    def _check(self, principal: Principal, kind: Kind[R], made: R, added: Usage) -> None:
        if principal.role is not Role.USER:
            return
        account, quota = made.metadata.account, self._quota_of(made.metadata)
        highest, wanted = quota.highest_priority, kind.strategy.priority(made)
        if highest is not None and wanted is not None and wanted > highest:
            raise ForbiddenError(f"spec.priority: {wanted}, at most {highest} for {account}")
        problem = excess(quota, self.used(account), added)
        if problem is not None:
            raise ForbiddenError(f"the quota of {account} is exhausted: {problem}")

    def used(self, account: str) -> Usage:
        """Return an account's usage, with writes that are pending or not yet in memory."""
        reached = self._cache.ring.revision
        self._promised = [promise for promise in self._promised if promise[2] is None or promise[2] > reached]
        own = (usage for name, usage, _ in self._promised if name == account)
        total = self._cache.usage.of(account)
        for usage in own:
            total = plus(total, usage)
        return total

    def _quota_of(self, metadata: Metadata) -> Quota:
        try:
            return self._cache.get(PROJECT, metadata.project).spec.quota if metadata.project else self._default
        except NotFoundError:
            return self._default
