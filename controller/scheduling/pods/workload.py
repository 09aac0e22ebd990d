"""The distribution of requests in a cluster: requests with their pod counts, which tell policies what to expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from controller.cluster.hardware import Request


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests with their counts, the most frequent first; compared by identity, so that derived values can be cached.

    It is a distribution, not a forecast: it does not predict the next pod.
    """

    requests: tuple[tuple[Request, int], ...]

    @classmethod
    def of(cls, requests: Iterable[Request] | Mapping[Request, int]) -> Self:
        """Return the workload of pods with these requests; among equally frequent ones the order is that of `repr`."""
        counts = Counter(requests)
        return cls(tuple(sorted(counts.items(), key=lambda item: (-item[1], repr(item[0])))))

    def typical(self, coverage: float = 1.0, *, with_memory: bool = True) -> tuple[tuple[Request, int], ...]:
        """Return the fewest of the most frequent requests that make up this share of all pods."""
        counts: Counter[Request] = Counter()
        for request, count in self.requests:
            counts[request if with_memory else replace(request, memory_bytes=0)] += count
        wanted, requests = coverage * counts.total(), []
        for request, count in sorted(counts.items(), key=lambda item: (-item[1], repr(item[0]))):
            if wanted <= 0:
                break
            requests.append((request, count))
            wanted -= count
        return tuple(requests)
