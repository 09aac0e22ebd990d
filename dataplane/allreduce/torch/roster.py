"""Ranks of a process group that are in the job: the service names hosts, PyTorch numbers ranks."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch.distributed as dist

from dataplane.allreduce.torch.agreement import Voters


class Roster:
    """Map of ranks to hosts in the group's store, under a `name` that is the same for all."""

    def __init__(
        self,
        store: dist.Store,
        name: str,
        rank: int,
        ranks: tuple[int, ...],
        *,
        host: str,
        members: Callable[[], Collection[str]],
    ) -> None:
        """Write this rank's host; `members` returns the hosts currently in the job."""
        self._store, self._name, self._ranks, self._members = store, name, ranks, members
        self._hosts: dict[int, str] = {rank: host}
        store.set(self._key(rank), host)

    def voters(self) -> Voters:
        """Return the participants of a decision; a rank whose host is not known yet has not left."""
        members = set(self._members())
        hosts = {rank: self._host(rank) for rank in self._ranks}
        return Voters(tuple(rank for rank, host in hosts.items() if host is None or host in members), len(members))

    def _host(self, rank: int) -> str | None:
        if rank not in self._hosts and self._store.check([self._key(rank)]):
            self._hosts[rank] = self._store.get(self._key(rank)).decode()
        return self._hosts.get(rank)

    def _key(self, rank: int) -> str:
        return f"{self._name}/host/{rank}"
