"""MeterEntry, DirectMeterEntry and the meters of table entries (sections 9.1.7 and 9.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4i, p4r

from dataplane.switch.p4runtime import Code
from dataplane.switch.p4runtime.codec import decode_meter
from dataplane.switch.p4runtime.errors import P4RuntimeError
from dataplane.switch.tables import MeterConfig

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
SOURCE = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x01"))]
OTHER = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x02"))]
CONFIG = p4r.MeterConfig(cir=10, cburst=20, pir=30, pburst=40)
TWO_RATES, THREE_COLOURS, TWO_COLOURS = p4i.MeterSpec.Type.values()


def cell(shell: Shell, index: int | None, config: p4r.MeterConfig | None = None) -> p4r.Entity:
    entry = p4r.MeterEntry(meter_id=shell.id("meters", "port_meter"), config=config)
    if index is not None:
        entry.index.index = index
    return p4r.Entity(meter_entry=entry)


def aging(
    shell: Shell,
    match: list[p4r.FieldMatch] = SOURCE,
    config: p4r.MeterConfig | None = None,
    action: str = "forward_metered",
) -> p4r.Entity:
    values = (b"\x03",) if action == "forward_metered" else ()
    return shell.entry("aging_table", match, action=shell.action(action, *values), meter_config=config)


def direct(shell: Shell, match: list[p4r.FieldMatch] = SOURCE, config: p4r.MeterConfig | None = None) -> p4r.Entity:
    wanted = shell.entry("aging_table", match).table_entry
    return p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry(table_entry=wanted, config=config))


def test_cells_are_set_read_and_reset(shell: Shell, switch: FakeSwitch) -> None:
    assert switch.state is not None
    meter = switch.state.meters["EntitiesIngress.port_meter"]
    assert shell.read(cell(shell, 1)) == [cell(shell, 1)]
    shell.modify(cell(shell, 1, CONFIG))
    assert meter.read(1) == MeterConfig(10, 20, 30, 40)
    assert shell.read(p4r.Entity(meter_entry=p4r.MeterEntry())) == [
        cell(shell, index, CONFIG if index == 1 else None) for index in range(4)
    ]
    shell.modify(cell(shell, 1))
    assert meter.read(1) is None
    shell.modify(cell(shell, None, CONFIG))
    assert shell.read(cell(shell, None)) == [cell(shell, index, CONFIG) for index in range(4)]


def test_refused_cells(shell: Shell) -> None:
    counted = cell(shell, 0, CONFIG)
    counted.meter_entry.counter_data.SetInParent()
    for kind, entity, code in (
        (INSERT, cell(shell, 0, CONFIG), Code.INVALID_ARGUMENT),
        (DELETE, cell(shell, 0), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, -1, CONFIG), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, 4, CONFIG), Code.OUT_OF_RANGE),
        (MODIFY, cell(shell, 0, p4r.MeterConfig(cir=-1)), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, 0, p4r.MeterConfig(cir=2, cburst=1, pir=1, pburst=1)), Code.INVALID_ARGUMENT),
        (MODIFY, cell(shell, 0, p4r.MeterConfig(cir=1, pir=1, eburst=1)), Code.INVALID_ARGUMENT),
        (MODIFY, counted, Code.UNIMPLEMENTED),
        (MODIFY, p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=5)), Code.NOT_FOUND),
        (MODIFY, p4r.Entity(meter_entry=p4r.MeterEntry()), Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(kind, entity) is code
    assert shell.read_refusal(cell(shell, 4)) is Code.OUT_OF_RANGE
    assert shell.read_refusal(counted) is Code.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("kind", "rates", "code"),
    [
        (TWO_RATES, (1, 2, 3, 4, 0), Code.OK),
        (TWO_RATES, (1, 2, 3, 4, 5), Code.INVALID_ARGUMENT),
        (THREE_COLOURS, (1, 2, 1, 2, 0), Code.OK),
        (THREE_COLOURS, (1, 2, 3, 2, 0), Code.INVALID_ARGUMENT),
        (THREE_COLOURS, (1, 2, 1, 2, 9), Code.UNIMPLEMENTED),
        (TWO_COLOURS, (1, 2, 1, 2, 0), Code.OK),
        (TWO_COLOURS, (1, 2, 1, 3, 0), Code.INVALID_ARGUMENT),
        (TWO_COLOURS, (1, 2, 1, 2, 3), Code.INVALID_ARGUMENT),
    ],
)
def test_a_meter_takes_the_rates_of_its_type(
    kind: p4i.MeterSpec.Type.ValueType, rates: tuple[int, ...], code: Code
) -> None:
    cir, cburst, pir, pburst, eburst = rates
    message = p4r.MeterConfig(cir=cir, cburst=cburst, pir=pir, pburst=pburst, eburst=eburst)
    try:
        assert decode_meter(message, kind, "m") == MeterConfig(*rates[:4])
        result = Code.OK
    except P4RuntimeError as error:
        result = error.code
    assert result is code


def test_direct_meters_live_and_die_with_their_entries(shell: Shell) -> None:
    shell.insert(aging(shell, config=CONFIG), aging(shell, OTHER))
    every = p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry())
    assert shell.read(every) == [direct(shell, config=CONFIG), direct(shell, OTHER)]
    assert shell.read(direct(shell)) == [direct(shell, config=CONFIG)]
    shell.modify(direct(shell, OTHER, CONFIG), direct(shell))
    assert shell.read(every) == [direct(shell), direct(shell, OTHER, CONFIG)]
    shell.delete(shell.entry("aging_table", OTHER))
    assert shell.read_refusal(direct(shell, OTHER)) is Code.NOT_FOUND
    assert shell.refusal(MODIFY, direct(shell, OTHER, CONFIG)) is Code.NOT_FOUND


def test_a_modified_entry_without_meter_is_green_again(shell: Shell) -> None:
    shell.insert(aging(shell, config=CONFIG))
    asked = shell.entry("aging_table", SOURCE, meter_config=p4r.MeterConfig())
    assert shell.read(asked) == [aging(shell, config=CONFIG)]
    assert shell.read(shell.entry("aging_table", SOURCE)) == [aging(shell)]
    shell.modify(aging(shell, config=CONFIG, action="NoAction"))
    assert shell.read(asked) == [aging(shell, config=CONFIG, action="NoAction")]
    shell.modify(aging(shell, action="NoAction"))
    assert shell.read(asked) == [aging(shell, action="NoAction")]


def test_refused_direct_meters(shell: Shell) -> None:
    shell.insert(aging(shell, config=CONFIG))
    counted, without = direct(shell), direct(shell)
    counted.direct_meter_entry.counter_data.SetInParent()
    without.direct_meter_entry.table_entry.table_id = shell.id("tables", "lpm_table")
    entry = aging(shell)
    entry.table_entry.meter_counter_data.SetInParent()
    for kind, entity, code in (
        (INSERT, direct(shell, config=CONFIG), Code.INVALID_ARGUMENT),
        (DELETE, direct(shell), Code.INVALID_ARGUMENT),
        (MODIFY, direct(shell, config=p4r.MeterConfig(cir=1)), Code.INVALID_ARGUMENT),
        (MODIFY, counted, Code.UNIMPLEMENTED),
        (MODIFY, without, Code.INVALID_ARGUMENT),
        (MODIFY, entry, Code.UNIMPLEMENTED),
        (INSERT, aging(shell, OTHER, p4r.MeterConfig(cir=1)), Code.INVALID_ARGUMENT),
    ):
        assert shell.refusal(kind, entity) is code
    for entity in (counted, entry):
        assert shell.read_refusal(entity) is Code.UNIMPLEMENTED
    assert shell.read_refusal(without) is Code.INVALID_ARGUMENT
    assert shell.read(direct(shell)) == [direct(shell, config=CONFIG)]


def test_meters_of_default_entries_are_like_any_other(shell: Shell) -> None:
    asked = shell.entry("aging_table", is_default_action=True, meter_config=p4r.MeterConfig())
    metered = shell.entry("aging_table", is_default_action=True, action=shell.action("NoAction"), meter_config=CONFIG)
    shell.modify(metered)
    assert shell.read(asked) == [metered]
    meter = p4r.Entity()
    meter.direct_meter_entry.table_entry.CopyFrom(shell.entry("aging_table", is_default_action=True).table_entry)
    (entity,) = shell.read(meter)
    assert entity.direct_meter_entry.config == CONFIG
    shell.modify(meter)
    (entity,) = shell.read(meter)
    assert not entity.direct_meter_entry.HasField("config")
    batch = shell.request(MODIFY, metered, shell.entry("aging_table", OTHER))
    batch.atomicity = p4r.WriteRequest.ROLLBACK_ON_ERROR
    with pytest.raises(P4RuntimeError):
        shell.core.write(batch)
    assert shell.read(meter) == [entity]
