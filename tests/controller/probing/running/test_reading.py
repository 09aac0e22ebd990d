"""The runner's reader of probe tasks is the strict one's twin; results are read as untrusted input."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.probing import files
from controller.probing.errors import ProbeError
from controller.probing.running import reading, results
from controller.probing.running.report import Outcome, Repetition, Report, encode, folded
from controller.probing.values import Implementation, KernelUse, Library, Link, ProbeTask, TargetRun
from dataplane.errors import ConfigError
from dataplane.topology.values import DeviceKind

CODE = Implementation(DeviceKind.CPU, Library.NUMPY, "somewhere:dgemm", threads=True)
PROBE = ProbeTask(
    "p",
    "hpc",
    tuple(KernelUse(name, "dgemm", 1, (("n", 8),), 3, 3000, CODE, 1e-9, "o", 2.5, "n") for name in ("a", "b", "c")),
    (Link("a", "c"), Link("b", "c")),
    "solve",
    "target",
    1000,
    ("plot",),
    0.97,
    7,
    reference=TargetRun(61.5, (("a", 0.01), ("b", 0.0075), ("c", 0.02))),
)
DOCUMENT: dict[str, Any] = json.loads(files.dumps(PROBE, as_json=True))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values in a document, outermost first."""
    own = [path] if path else []
    if isinstance(value, dict):
        return [*own, *(inner for name in value for inner in places(value[name], (*path, name)))]
    if isinstance(value, list):
        return [*own, *(inner for at in range(len(value)) for inner in places(value[at], (*path, at)))]
    return own


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 3),
    st.sampled_from([1 << 53, (1 << 53) + 1, -0.0, 1.5, 1e300, "", "x", "X", "é", [], {}, "a" * 2000, ["a"], {"n": 1}]),
)


@given(st.sampled_from(places(DOCUMENT)), STRANGE, st.sampled_from(["set", "drop", "rename"]))
def test_both_readers_accept_the_same_probe_tasks(path: tuple[Any, ...], value: Any, change: str) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    around = document
    for step in path[:-1]:
        around = around[step]
    if change == "set":
        around[path[-1]] = value
    elif change == "drop":
        del around[path[-1]]
    elif isinstance(around, dict):
        around["strange"] = around.pop(path[-1])
    text = json.dumps(document)
    expected: ProbeTask | None
    try:
        expected = files.loads(text)
    except ConfigError:
        expected = None
    task: ProbeTask | None
    try:
        task = reading.decode(text.encode())
    except ProbeError:
        task = None
    assert task == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "invalid JSON"),
        (b"[]", "must be an object"),
        (b"[" * 100_000, "invalid JSON"),
        (b'{"millrace": 1, "millrace": 1}', "a key appears twice"),
        (b'{"millrace": NaN}', "NaN is not a JSON number"),
        (b'{"millrace": 2, "name": "p", "category": "hpc", "uses": []}', "millrace: unknown format 2"),
        (b" " * (reading.MAX_BYTES + 1), "more than"),
        ("é".encode("latin-1"), "invalid JSON"),
    ],
)
def test_invalid_probe_task_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(ProbeError, match=f"^p: .*{message}") as refused:
        reading.decode(content, file="p")
    assert "\n" not in str(refused.value)


NAMES = st.sampled_from(["a", "b", "dgemm.1"])
SECONDS = st.floats(0, 1e6)
REPETITIONS = st.builds(
    Repetition,
    SECONDS,
    st.dictionaries(NAMES, st.lists(SECONDS, min_size=1, max_size=4).map(tuple)),
    st.dictionaries(NAMES, st.floats(0, 1)),
)
REPORTS = st.builds(
    Report,
    NAMES,
    st.integers(1, 4096),
    st.integers(1, 4096),
    st.sampled_from(Outcome),
    st.text(max_size=100),
    st.none() | NAMES,
    st.lists(REPETITIONS, max_size=4).map(tuple),
    st.dictionaries(NAMES, SECONDS),
    st.integers(0, (1 << 63) - 1),
    *(st.none() | SECONDS for _ in range(4)),
    st.none() | st.integers(0, 1 << 50),
)


@given(REPORTS)
def test_results_of_the_runner_are_read_back(report: Report) -> None:
    result = results.decode(encode(report))
    assert (result.outcome, result.problem, result.use) == (report.outcome, report.problem, report.use)
    assert [repetition.run_time_s for repetition in result.repetitions] == [
        repetition.run_time_s for repetition in report.repetitions
    ]
    assert [repetition.kernels_s for repetition in result.repetitions] == [
        repetition.kernels_s for repetition in report.repetitions
    ]
    assert (result.steady_s, result.started_ns, result.wall_s) == (report.steady_s, report.started_ns, report.wall_s)
    run = results.to_probe_run(result)
    assert len(run.run_times_s) == len(report.repetitions)


GOOD = json.loads(
    encode(Report("p", 1, 1, Outcome.SUCCEEDED, repetitions=[Repetition(1.0, {"a": (1.0,)}, {"a": 1e-16})]))
)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("repetitions", 0, "run_time_s"), -1.0),
        (("repetitions", 0, "run_time_s"), 1e10),
        (("repetitions", 0, "run_time_s"), "1"),
        (("repetitions", 0, "kernels_s"), {"A b": [1.0]}),
        (("repetitions", 0, "kernels_s"), {"a": [-1.0]}),
        (("repetitions", 0, "kernels_s"), {"a": [1.0] * 10_001}),
        (("repetitions", 0, "accuracies"), {"a": -1e-9}),
        (("repetitions",), [GOOD["repetitions"][0]] * 10_001),
        (("units",), 1 << 60),
        (("outcome",), "fine"),
        (("probe",), "../../etc"),
        (("problem",), "x" * 2000),
        (("more",), 1),
        (("millrace",), 2),
    ],
)
def test_results_out_of_their_bounds_are_refused(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(json.dumps(GOOD))
    around = document
    for step in path[:-1]:
        around = around[step]
    around[path[-1]] = value
    with pytest.raises(ProbeError, match="not a result of a probe task"):
        results.decode(json.dumps(document).encode())


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_results_with_invalid_numbers_are_refused(number: str) -> None:
    text = json.dumps(GOOD).replace('"run_time_s": 1.0', f'"run_time_s": {number}')
    with pytest.raises(ProbeError, match="not a result of a probe task"):
        results.decode(text.encode())


@given(st.binary(max_size=200))
def test_bytes_that_are_no_result_are_refused(content: bytes) -> None:
    with pytest.raises(ProbeError):
        results.decode(content)


def test_results_of_many_bytes_links_and_pipes_are_refused(tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(results.MAX_BYTES + 1)
    with pytest.raises(ProbeError, match="more than"):
        results.read(big)
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(big)
    os.mkfifo(pipe)
    for path, message in ((link, "symbolic links"), (pipe, "not a file"), (Path("/dev/zero"), "not a file")):
        with pytest.raises(ProbeError, match=message):
            results.read(path)
    with pytest.raises(ProbeError, match="No such file"):
        results.read(tmp_path / "none")


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=60), st.integers(1, 20))
def test_fewer_numbers_of_nearly_the_same_mean(times: list[float], most: int) -> None:
    kept = folded(times, most)
    assert len(kept) == min(len(times), most)
    assert min(times) - 1e-9 <= min(kept) <= max(kept) <= max(times) + 1e-9
    if len(times) % len(kept) == 0:
        assert math.isclose(math.fsum(kept) / len(kept), math.fsum(times) / len(times), abs_tol=1e-9)
