"""Division of a kernel's work among processes."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from controller.probing.running.crew import is_shared, sizes_of_part
from controller.probing.running.failing import FailedError
from controller.probing.running.report import Outcome
from controller.probing.values import Implementation, KernelUse, Library, sizes_of
from dataplane.topology.values import DeviceKind


def spmv(rows: int, nonzeros: int, *, splits: str = "rows nonzeros", threads: bool = False) -> KernelUse:
    code = Implementation(DeviceKind.CPU, Library.SCIPY, "somewhere:spmv", threads)
    sizes = sizes_of({"rows": rows, "columns": 9, "nonzeros": nonzeros})
    return KernelUse("spmv", "spmv", 1, sizes, 1, 1, code, 1e-9, splits=splits)


@given(st.integers(1, 100), st.integers(0, 1000), st.integers(1, 130))
def test_parts_are_the_whole_work_and_about_equal(rows: int, nonzeros: int, count: int) -> None:
    parts = [sizes_of_part(spmv(rows, nonzeros), part, count) for part in range(count)]
    working = [part for part in parts if part is not None]
    assert len(working) == min(rows, count)
    assert parts[: len(working)] == working
    assert sum(part["rows"] for part in working) == rows
    assert all(part["columns"] == 9 for part in working)
    assert max(part["rows"] for part in working) - min(part["rows"] for part in working) <= 1
    if count <= rows:
        assert sum(part["nonzeros"] for part in working) == nonzeros


def test_only_splittable_single_threaded_kernels_are_shared() -> None:
    assert is_shared(spmv(8, 20))
    assert not is_shared(spmv(8, 20, splits=""))
    assert not is_shared(spmv(8, 20, threads=True))
    assert not is_shared(spmv(1, 20))


def test_failures_come_through_pipes_as_they_were() -> None:
    copy = pickle.loads(pickle.dumps(FailedError(Outcome.WRONG_VALUE, "off")))
    assert (copy.outcome, str(copy)) == (Outcome.WRONG_VALUE, "off")
