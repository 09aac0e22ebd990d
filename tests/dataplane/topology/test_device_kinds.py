"""The table of device kinds: complete, and without a device of two kinds."""

from __future__ import annotations

from itertools import chain

from dataplane.topology.device_kinds import DEVICE_TRAITS
from dataplane.topology.values import DeviceKind


def test_every_kind_has_a_row_in_order() -> None:
    assert list(DEVICE_TRAITS) == list(DeviceKind)


def test_no_trait_belongs_to_two_kinds() -> None:
    rows = DEVICE_TRAITS.values()
    for claims in (
        [ids for row in rows for ids in row.pci_ids],
        [ids for row in rows for ids in row.pci_classes],
        [row.sysfs_class for row in rows if row.sysfs_class],
        list(chain.from_iterable(row.resources for row in rows)),
        list(chain.from_iterable(row.variables for row in rows)),
    ):
        assert len(claims) == len(set(claims))


def test_hooks_variables_are_among_the_variables() -> None:
    assert all(set(row.hook_variables) <= set(row.variables) for row in DEVICE_TRAITS.values())
