"""Table entries that `millrace switch` takes and returns a second over P4Runtime, beside bmv2 where it is installed.

The program is programs/sweep.p4. A Python client on the same machine inserts entries one batch after the other into
the exact, the lpm and the ternary table (16 masks), in batches of 1 to 10,000, then reads 100,000 entries back. Rates
are by the client's clock; CPU times are the switch's (user and system, from /proc), and do not depend on the client's.

Usage: python tests/benchmarks/inserts.py [--entries N] [--batches N...] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from finsy.proto import p4r
from rich.console import Console
from rich.table import Table

from tests.benchmarks.traffic import sweep
from tests.benchmarks.traffic.targets import BMV2, COMPILED, Running, is_available, running
from tests.p4runtime_client import ELECTION

KINDS = {"exact": sweep.EXACT, "lpm": sweep.PREFIX, "ternary": sweep.TERNARY}
BATCHES = (1, 10, 100, 1_000, 10_000)
STATED_BATCH = 1_000
READ_ENTRIES = 100_000
_CALLS = 2_000
"""Calls of one measurement at most, as small batches are slow."""


@dataclass(frozen=True, slots=True)
class Inserts:
    """The cost of inserting entries."""

    per_s: float
    cpu_us: float
    """CPU time of the switch for an entry."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The cost of reading a table back."""

    entries: int
    per_s: float
    cpu_us: float
    messages: int
    largest_bytes: int
    growth_mib: float
    """Growth of the switch's peak memory during the read."""


def measure_inserts(switch: Running, kind: str, batch: int, entries: int) -> Inserts:
    """Insert entries into an empty table of a kind."""
    sweep.commit(switch.client)
    requests = [_request(updates) for updates in sweep.batches(entries, batch, KINDS[kind])]
    write = switch.client.stub.Write
    cpu_s, began_s = cpu_seconds(switch.pid), time.perf_counter()
    for request in requests:
        write(request)
    took_s = time.perf_counter() - began_s
    return Inserts(entries / took_s, (cpu_seconds(switch.pid) - cpu_s) / entries * 1e6)


def measure_reading(switch: Running, kind: str, entries: int) -> Reading:
    """Fill a table of a kind, and read all of it."""
    sweep.commit(switch.client)
    for updates in sweep.batches(entries, 10_000, KINDS[kind]):
        switch.client.write(updates)
    table_id = sweep.table_id(KINDS[kind])
    wanted = p4r.Entity(table_entry=p4r.TableEntry(table_id=table_id))
    request = p4r.ReadRequest(device_id=switch.client.device_id, entities=[wanted])
    _reset_peak(switch.pid)
    peak_mib, cpu_s, began_s = _peak_mib(switch.pid), cpu_seconds(switch.pid), time.perf_counter()
    count = messages = largest = 0
    for answer in switch.client.stub.Read(request):
        count, messages, largest = count + len(answer.entities), messages + 1, max(largest, answer.ByteSize())
    took_s = time.perf_counter() - began_s
    assert count == entries, f"{count} of {entries} entries came back"
    cpu_us = (cpu_seconds(switch.pid) - cpu_s) / entries * 1e6
    return Reading(count, count / took_s, cpu_us, messages, largest, _peak_mib(switch.pid) - peak_mib)


def _request(updates: Sequence[p4r.Update]) -> p4r.WriteRequest:
    return p4r.WriteRequest(device_id=1, election_id=ELECTION, updates=updates)


def cpu_seconds(pid: int) -> float:
    """Return a process's CPU time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _cases(entries: int, batches: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    for kind in KINDS:
        for batch in batches:
            yield kind, batch, max(batch, min(entries, _CALLS * batch))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="fewer entries")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="sizes; the stated one is 1,000")
    given = parser.parse_args(arguments)
    batches = sorted({*given.batches, STATED_BATCH})
    entries, read = (20_000, 20_000) if given.quick else (given.entries, READ_ENTRIES)
    console, found = Console(width=120), {}
    with running(COMPILED, None) as switch:
        for kind in KINDS:
            measure_inserts(switch, kind, STATED_BATCH, STATED_BATCH)  # its kernels may have to be compiled first
        table = Table("table", "batch", "inserts/s", "us CPU an entry", title="inserts")
        for kind, batch, count in _cases(entries, batches):
            inserts = measure_inserts(switch, kind, batch, count)
            found[kind, batch] = inserts
            table.add_row(kind, f"{batch:,}", f"{inserts.per_s:,.0f}", f"{inserts.cpu_us:.1f}")
        console.print(table)
        reads = Table("table", "entries", "entries/s", "us CPU", "messages", "largest", "memory", title="reads")
        for kind in KINDS:
            reading = measure_reading(switch, kind, read)
            sizes = f"{reading.largest_bytes:,} B", f"{reading.growth_mib:.1f} MiB"
            figures = f"{reading.per_s:,.0f}", f"{reading.cpu_us:.1f}", f"{reading.messages:,}"
            reads.add_row(kind, f"{reading.entries:,}", *figures, *sizes)
        console.print(reads)
    bmv2_per_s = _bmv2_per_s(entries)
    stated = {kind: found[kind, STATED_BATCH] for kind in KINDS}
    ratio = None if bmv2_per_s is None else round(stated["exact"].per_s / bmv2_per_s, 2)
    rates = {f"inserts_per_s_{kind}": round(inserts.per_s) for kind, inserts in stated.items()}
    costs = {f"inserts_cpu_us_{kind}": round(inserts.cpu_us, 1) for kind, inserts in stated.items()}
    print(json.dumps({**rates, **costs, "inserts_ratio_bmv2": ratio}))


def _bmv2_per_s(entries: int) -> float | None:
    """Return bmv2's inserts a second into the exact table; None where it is not installed."""
    if not is_available(BMV2):
        return None
    with running(BMV2, None) as switch:
        return measure_inserts(switch, "exact", STATED_BATCH, entries).per_s


if __name__ == "__main__":
    main()
