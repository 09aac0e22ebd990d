"""A veth cable between two network namespaces, as between a switch and a host."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import pytest

from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.links import CableEnd, bring_up, connect, silence
from dataplane.fabric.kernel.manifest import held_namespaces

T = TypeVar("T")
HERE, THERE = "here", "there"
HERE_MAC, THERE_MAC = 0x02_00_00_00_00_01, 0x02_00_00_00_00_02


@dataclass(frozen=True, slots=True)
class LongCable:
    """The names of two namespaces; the device `here` is in the first, `there` in the second."""

    near: str
    far: str

    def here(self, function: Callable[[], T]) -> T:
        """Run a function in the first namespace."""
        return namespaces.call(self.near, function)

    def there(self, function: Callable[[], T]) -> T:
        """Run a function in the second namespace."""
        return namespaces.call(self.far, function)


@contextmanager
def long_cable(mtu: int = 1500) -> Iterator[LongCable]:
    """Yield a cable whose ends are up, silent, and offload nothing; skip the test without root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    mark = secrets.token_hex(3)
    cable = LongCable(f"mr-near-{mark}", f"mr-far-{mark}")
    with held_namespaces(cable.near, cable.far):
        for name in (cable.near, cable.far):
            silence(name)
        connect(CableEnd(cable.near, HERE, HERE_MAC, mtu), CableEnd(cable.far, THERE, THERE_MAC, mtu))
        bring_up(cable.near, [HERE])
        bring_up(cable.far, [THERE])
        yield cable
