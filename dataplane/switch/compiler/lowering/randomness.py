"""The random numbers of compiled programs: those of `dataplane.switch.random_numbers`."""

from __future__ import annotations

from dataplane.native import kernel, u64
from dataplane.switch.abi import Machine
from dataplane.switch.random_numbers import FACTORS, INCREMENT

_FIRST, _SECOND = FACTORS


@kernel
def next_random(machine: Machine) -> u64:
    """Return the machine's next 64-bit number."""
    machine.random_state += INCREMENT
    mixed = machine.random_state
    mixed = (mixed ^ (mixed >> 30)) * _FIRST
    mixed = (mixed ^ (mixed >> 27)) * _SECOND
    return mixed ^ (mixed >> 31)
