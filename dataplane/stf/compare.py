"""Comparison of a switch's output frames with those that a test expects, port by port and in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from dataplane.stf.statements import Expect


@dataclass(frozen=True, slots=True)
class Difference:
    """A test failure: a frame that differs, is missing, or is unexpected; or a failed check.

    `port` is None for a check; `expected` is None for an unexpected frame, `got` for a missing one.
    """

    line: int
    problem: str
    port: int | None = None
    expected: str | None = None
    got: bytes | None = None


@dataclass(slots=True)
class Ledger:
    """Expected and received frames per port; only for ports in `named`, as p4c's runner ignores all others."""

    named: frozenset[int]
    _expected: dict[int, list[tuple[int, Expect]]] = field(default_factory=dict)
    _arrived: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)

    def expect(self, line: int, expect: Expect) -> None:
        """Record an expectation of line `line`."""
        self._expected.setdefault(expect.port, []).append((line, expect))

    def arrive(self, line: int, port: int, data: bytes) -> bool:
        """Record a frame caused by the packet of `line`; return whether the port is watched."""
        if port not in self.named:
            return False
        self._arrived.setdefault(port, []).append((line, data))
        return True

    def differences(self) -> list[Difference]:
        """Return the first difference of each port that has one."""
        problems = [self._compare(port) for port in sorted({*self._expected, *self._arrived})]
        return [difference for difference in problems if difference is not None]

    def _compare(self, port: int) -> Difference | None:
        expected, arrived = self._expected.get(port, []), self._arrived.get(port, [])
        for (line, expect), (_, data) in zip(expected, arrived, strict=False):
            problem = _problem(expect, data)
            if problem is not None:
                return Difference(line, problem, port, _written(expect), data)
        if len(expected) > len(arrived):
            line, expect = expected[len(arrived)]
            return Difference(line, "no frame came", port, _written(expect))
        if len(arrived) > len(expected):
            line, data = arrived[len(expected)]
            return Difference(line, "sent a frame that is not expected", port, got=data)
        return None


def _problem(expect: Expect, data: bytes) -> str | None:
    """Return how `data` differs from `expect`, or None."""
    if expect.digits is None:
        return None
    got = data.hex()
    for index, (wanted, digit) in enumerate(zip(expect.digits, got, strict=False)):
        if wanted not in ("*", digit):
            return f"differs at byte {index // 2}"
    if len(got) < len(expect.digits):
        return f"is {len(data)} bytes long, too short"
    if expect.exact and len(got) > len(expect.digits):
        return f"is {len(data)} bytes long, too long"
    return None


def _written(expect: Expect) -> str:
    return "any" if expect.digits is None else expect.digits + ("$" if expect.exact else "")
