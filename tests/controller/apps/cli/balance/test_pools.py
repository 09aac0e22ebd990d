"""`millrace balance` set, report, status and history, on a server in a thread."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Metadata, UnitPool
from controller.apiserver.resources.unit_pool import (
    HolderControl,
    HolderStatus,
    UnitHolding,
    UnitPoolSpec,
    UnitPoolStatus,
)
from controller.balance.serving.history import History
from tests.controller.apps.cli.conftest import Run


def test_pool_is_created_and_changed_in_named_fields_only(served: Place, run: Run) -> None:
    out, err = run("balance set gpus --create --units 8 --claim i:least=2,weight=1.5 --claim ii --lease-s 30 --kp 0.5")
    assert out.startswith("UnitPool gpus: 8 units; i, ii; P, kp 0.5, ki 0, kd 0 (fixed), rule table")
    assert err.startswith("stable: gains may be ")
    run("balance set gpus --claim i:most=6 --without ii --paused --rule platform --node h1 --model A100")
    with SyncApiClient(served) as client:
        spec = client.of(UnitPool).get("gpus").spec
    (claim,) = spec.claims
    assert (spec.node, spec.model) == ("h1", "A100")
    assert (claim.holder, claim.least, claim.most, claim.weight) == ("i", 2, 6, 1.5)
    assert (spec.units, spec.lease_s, spec.paused, spec.control.kp, spec.control.rule) == (8, 30, True, 0.5, "platform")


def test_invalid_input_is_refused_in_one_line(served: Place, run: Run) -> None:
    assert run("balance set none --units 3") == ("", "millrace: there is no UnitPool none\n")
    assert run("balance set new --create")[1] == "millrace: --units: required for a new pool\n"
    make = "balance set new --create --units 100 --claim"
    assert "'lest=3' is not one of least=N, most=N" in run(f"{make} i:lest=3")[1]
    assert "least: 'x' is not a number" in run(f"{make} i:least=x")[1]
    assert "least 5 exceeds most 2" in run(f"{make} i:least=5,most=2")[1]
    assert "Invalid enum value 'PIP'" in run(f"{make} i --form PIP")[1]
    refused = run(f"{make} i --form PI --kp 60 --ki 5")[1]
    assert refused.startswith("millrace: kp 60, ki 5, kd 0 are unstable on a plant of gain ")
    assert refused.count("\n") == 1
    with SyncApiClient(served) as client:
        assert client.of(UnitPool).list().items == ()


def test_minimum_shares_beyond_the_pool_are_warned_about(served: Place, run: Run) -> None:
    errors = run("balance set gpus --create --units 10 --claim i:least=6 --claim ii:least=5")[1]
    assert errors == "warning: claims: minimum shares add up to 11 of 10 units: not all can be met\n"
    assert run("balance set gpus --claim ii:least=4")[1] == ""


def test_holders_report_and_their_pool_is_shown(served: Place, run: Run) -> None:
    run("balance set gpus --create --units 10 --claim i --claim ii --lease-s 30")
    with SyncApiClient(served) as client:
        client.share_units("gpus", (UnitHolding(holder="i", units=6, leaving=2),))
    told = run("balance report gpus i --bus 1 --load 0.25 --holds 6 --precision int8 --mhz 1000")[0]
    assert told == "i has 6 units of gpus, 2 of them being reclaimed\n"
    wrong = run("balance report gpus i --bus 1 --load 1 --precision int9")[1]
    assert (
        wrong == "millrace: --precision 'int9' is not one of int4, int8, int16, int32, bf16, fp16, tf32, fp32, fp64\n"
    )
    assert run("balance report gpus i --holds 7")[1] == "millrace: UnitPool gpus: i has 6 units, not 7\n"
    with SyncApiClient(served) as client:
        pools = client.of(UnitPool)
        pool = pools.get("gpus")
        made = HolderControl(holder="i", error=0.75, output=0.75, wants=-2, precision_steps=2, frequency_mhz=-300)
        status = replace(pool.status, control=(made,), shadow_price=0.5, reason="")
        pools.replace_status(replace(pool, status=status))
    first, second = json.loads(run("balance status gpus -f json")[0])
    assert (first["holder"], first["units"], first["asked back"], first["bus %"]) == ("i", 6, 2, 100.0)
    assert (first["error"], first["u"], first["wants"], first["levers"]) == (0.75, 0.75, -2, "int8 +2, 1000 -300 MHz")
    assert 0 <= first["reported s ago"] < 30
    assert (second["holder"], second["units"], second["reported s ago"]) == ("ii", 0, None)
    assert run("balance status")[0].startswith("gpus: 6 of 10 units are held, one more unit would be worth 0.5\n")


def kept(folder: Path) -> Path:
    """Return a history of two holders."""
    file, history = folder / "balance.sqlite", History(str(folder / "balance.sqlite"))
    begin_ns, shares = (
        time.time_ns() - 60_000_000_000,
        (UnitHolding(holder="i", units=100), UnitHolding(holder="ii", units=1)),
    )
    for number in range(30):
        at_ns = begin_ns + number * 1_000_000_000
        holders = tuple(
            HolderStatus(holder=holder, bus=0.5, load=0.4, precision="int8", frequency_mhz=1000, reported_ns=at_ns)
            for holder in ("i", "ii")
        )
        control = tuple(HolderControl(holder=holder.holder, error=0.1, output=0.02 * number) for holder in holders)
        pool = UnitPool(
            metadata=Metadata(name="gpus"),
            spec=UnitPoolSpec(units=200),
            status=UnitPoolStatus(holders=holders, control=control),
            shares=shares,
        )
        history.note_reports(pool, ("i", "ii"))
    history.note_changes(
        pool, (UnitHolding(holder="i", units=100, leaving=4), UnitHolding(holder="iii", units=1)), at_ns
    )
    history.commit()
    history.close()
    return file


def test_the_history_is_shown_and_drawn(run: Run, tmp_path: Path) -> None:
    file = kept(tmp_path)
    rows = list(csv.DictReader(io.StringIO(run(f"balance history gpus --file {file} --holder i -f csv")[0])))
    assert len(rows) == 30
    assert (rows[-1]["output"], rows[-1]["units"], rows[-1]["precision"]) == ("0.58", "100", "int8")
    moves = json.loads(run(f"balance history gpus --file {file} --moves -f json")[0])
    assert [(move["holder"], move["before"], move["after"], move["leaving"]) for move in moves] == [
        ("i", 100, 100, 4),
        ("ii", 1, 0, 0),
        ("iii", 0, 1, 0),
    ]
    for name in ("h.png", "h.svg"):
        assert run(f"balance history gpus --file {file} --picture {tmp_path / name}")[1] == f"wrote {tmp_path / name}\n"
        assert (tmp_path / name).stat().st_size > 1000
    assert "ends in .png or .svg" in run(f"balance history gpus --file {file} --picture h.jpg")[1]
    lately = run(f"balance history gpus --file {file} --last-s 5 --picture h.png")[1]
    assert "no report of pool gpus to draw" in lately
    assert "no history of balancing" in run(f"balance history gpus --file {tmp_path}/none")[1]
    (tmp_path / "text").write_text("no database")
    assert "cannot open the history of balancing" in run(f"balance history gpus --file {tmp_path}/text")[1]


def test_history_of_an_unknown_pool_or_holder_is_an_error(run: Run, tmp_path: Path) -> None:
    file = kept(tmp_path)
    for more in ("", " --moves", " --picture h.png"):
        problem = f"millrace: {file}: no records of pool gpsu\n"
        assert run(f"balance history gpsu --file {file}{more}") == ("", problem)
    problem = f"millrace: {file}: pool gpus: no records of holder iv\n"
    assert run(f"balance history gpus --file {file} --holder iv") == ("", problem)
    assert run(f"balance history gpus --file {file} --last-s 5 -f json") == ("[]\n", "")
