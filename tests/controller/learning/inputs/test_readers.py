"""Inputs from files and seeds, and refusals of malformed files."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from controller.cluster.workloads.errors import WorkloadError
from controller.learning.environment.values import ANY_ENGINE, EngineKind
from controller.learning.errors import LearningError
from controller.learning.inputs.blocks import BlockSettings, block_input, spread_ns
from controller.learning.inputs.bursty import BurstySettings, bursty_input
from controller.learning.inputs.graphs import GraphSettings, graph_input
from controller.learning.inputs.jobs import JobSettings, read_jobs
from controller.learning.inputs.values import Jobs, PoolInput
from controller.learning.values import Observation
from tests.reference.pool import PlainPool

DATA = Path(__file__).parents[5] / "shared" / "data"
S = 1_000_000_000

BLOCKS = """version,time,op,size,lbn
1,100,2a,512,0
1,100,28,65536,64
1,100,2a,512,0
1,102,28,4096,1000000
"""
GRAPH = "1 0.004 -1\n2 0.010 0.001 1\n3 0.008 0.004 1\n4 0.006 0.012 2,3\n"
LOG = """; a log
1 5094 -1 100 16 -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1
2 5170 -1 0 1 -1 -1 -1 300 -1 1 -1 -1 -1 0 -1 -1 -1
3 6742 -1 50 4 -1 -1 -1 20 -1 1 -1 -1 -1 0 -1 -1 -1
"""


def given(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is missing")
    return DATA / name


def written(folder: Path, text: str) -> Path:
    path = folder / "input"
    path.write_text(text)
    return path


def decided(made: PoolInput, most: int = 10_000) -> list[int]:
    """Send each task to the candidates in turn; return the responses."""
    pool = PlainPool(made.system, made.workload, made.settings)
    responses: list[int] = []
    seen: Observation | None = pool.start(0)
    while seen is not None and len(responses) < most:
        possible = np.flatnonzero(seen.candidates)
        step = pool.step(int(possible[len(responses) % len(possible)]))
        assert seen.row.min() >= 0
        assert seen.row.max() <= 1
        responses.append(step.response_ns)
        seen = step.observation
    return responses


def test_requests_are_spread_over_their_second_and_compressed(tmp_path: Path) -> None:
    assert spread_ns([0, 0, 0, 2 * S]) == [0, S // 3, 2 * S // 3, 2 * S]
    made = block_input(written(tmp_path, BLOCKS), BlockSettings(time_compression=1000))
    assert made.workload.submitted_ns.tolist() == [0, S // 3000, 2 * S // 3000, 2 * S // 1000]


def test_opcode_2a_writes_and_28_reads_the_touched_extents(tmp_path: Path) -> None:
    workload = block_input(written(tmp_path, BLOCKS)).workload
    accesses = [workload.access_object[b:e].tolist() for b, e in pairwise(workload.access_start.tolist())]
    # Sector 64 is in the middle of the first extent of 65,536 bytes, so that many bytes reach into the second.
    assert accesses == [[0], [0, 1], [0], [2]]
    assert workload.access_is_write.tolist() == [1, 0, 0, 1, 0]
    assert set(workload.object_bytes.tolist()) == {65536}
    assert workload.int_operations.tolist() == [8 * 512, 8 * 65536, 8 * 512, 8 * 4096]


def test_a_part_of_a_trace_is_taken(tmp_path: Path) -> None:
    path = written(tmp_path, BLOCKS)
    assert len(block_input(path, BlockSettings(first=1, requests=2)).workload) == 2
    with pytest.raises(LearningError, match="no request from number 4 on"):
        block_input(path, BlockSettings(first=4))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1,99,2a,512,0", "time is 99"),
        ("1,100,read,512,0", "op is 'read'"),
        ("1,100,2a,0,0", "size"),
        ("1,100", "2 fields"),
    ],
)
def test_a_malformed_request_is_refused_with_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    path = written(tmp_path, BLOCKS.replace("1,100,28,65536,64", line))
    with pytest.raises(WorkloadError, match=rf"input:3: {problem}"):
        block_input(path)


def test_tasks_of_a_graph_take_the_files_times_on_both_engines(tmp_path: Path) -> None:
    made = graph_input(written(tmp_path, GRAPH), GraphSettings(time_compression=1000, gpu_every=1))
    cpu, gpu = made.system.nodes[0].engines
    workload = made.workload
    for engine, times_us in ((cpu, [4, 10, 8, 6]), (gpu, [None, 1, 4, 12])):
        for task, time_us in enumerate(times_us):
            takes_s = workload.float_operations[task] / engine.float_ops_per_s
            takes_s += workload.int_operations[task] / engine.int_ops_per_s
            if time_us is not None:
                assert takes_s * 1e6 == pytest.approx(time_us, abs=0.001)
    assert workload.kinds.tolist()[0] == EngineKind.CPU.bit
    assert {EngineKind.CPU.bit | EngineKind.GPU.bit} == set(workload.kinds.tolist()[1:])


def test_graph_output_has_the_edge_size_and_all_successors_read(tmp_path: Path) -> None:
    workload = graph_input(written(tmp_path, GRAPH), GraphSettings(edge_bytes=1000)).workload
    reads = [
        workload.access_object[b:e][workload.access_is_write[b:e] == 0].tolist()
        for b, e in pairwise(workload.access_start.tolist())
    ]
    # The first task reads an object of the pool and writes the one that the others read.
    assert reads == [[0], [1], [1], [2, 3]]
    assert workload.created.tolist() == [0, 1, 1, 1, 1]
    assert set(workload.object_bytes.tolist()) == {1000}
    assert workload.predecessors.tolist() == [0, 1, 1, 2]


def test_edge_sizes_are_spread_by_seed(tmp_path: Path) -> None:
    path = written(tmp_path, GRAPH)
    first, again, other = (
        graph_input(path, GraphSettings(edge_spread=0.5, seed=seed)).workload.object_bytes.tolist()
        for seed in (0, 0, 1)
    )
    assert first == again != other


def test_copies_of_a_graph_arrive_one_after_another(tmp_path: Path) -> None:
    made = graph_input(written(tmp_path, GRAPH), GraphSettings(copies=3))
    times = made.workload.submitted_ns.reshape(3, 4)
    assert (times == times[:, :1]).all()
    assert 0 == times[0, 0] < times[1, 0] < times[2, 0]
    assert len(decided(made)) == 12


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("2 x 0.001 1", "cpu_s is 'x'"),
        ("2 0.01 -2 1", "gpu_s is"),
        ("2 1e300 0.1 1", "cpu_s is 1e300, more than"),
        ("2", "1 fi"),
    ],
)
def test_a_malformed_task_is_refused_with_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    path = written(tmp_path, GRAPH.replace("2 0.010 0.001 1", line))
    with pytest.raises(WorkloadError, match=rf"input:2: {problem}"):
        graph_input(path)


def test_a_task_that_would_take_no_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match="task 2 takes no time"):
        graph_input(written(tmp_path, GRAPH), GraphSettings(time_compression=2_000_000))


@pytest.mark.parametrize("line", ["1,100,28,1000000000000000,64", "1,2000000000,28,512,64"])
def test_a_request_of_more_than_there_can_be_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(LearningError, match="request 1: "):
        block_input(written(tmp_path, "\n".join([*BLOCKS.split("\n")[:2], line, ""])))


@pytest.mark.parametrize("line", ["2 0.010 1e9 1", "2 1e9 0.001 1"])
def test_a_task_that_takes_longer_than_there_can_be_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(LearningError, match="task 2 takes no time or more than"):
        graph_input(written(tmp_path, GRAPH.replace("2 0.010 0.001 1", line)))


@pytest.mark.parametrize("field", ["5170", "300"])
def test_a_job_that_is_later_than_there_is_time_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(LearningError, match="jobs are submitted or run later"):
        read_jobs(written(tmp_path, LOG.replace(f" {field} ", " 2000000000 ")))


def test_estimates_are_the_logs_or_exact_or_a_stated_model(tmp_path: Path) -> None:
    path = written(tmp_path, LOG)
    exact = read_jobs(path)
    assert exact.submitted_ns.tolist() == [0, 76 * S, 1648 * S]
    # A run time of 0 counts as 1 s; no estimate is below the run time.
    assert exact.run_ns.tolist() == [100 * S, S, 50 * S]
    assert exact.estimate_ns.tolist() == [100 * S, 300 * S, 50 * S]
    drawn = read_jobs(path, JobSettings(estimate_factor=5)).estimate_ns.tolist()
    assert 100 * S < drawn[0] <= 500 * S
    assert drawn[1:] == [300 * S, 50 * S]


@pytest.mark.parametrize(
    ("line", "problem"),
    [("2 5170 -1 0 1 -1", "6 fields"), ("2 5170 -1 -2" + " 1" * 14, "run is -2"), ("2 x" + " 1" * 16, "submit is 'x'")],
)
def test_a_malformed_job_is_refused_with_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    path = written(tmp_path, LOG.replace("2 5170 -1 0 1 -1 -1 -1 300 -1 1 -1 -1 -1 0 -1 -1 -1", line))
    with pytest.raises(WorkloadError, match=rf"input:3: {problem}"):
        read_jobs(path)


def test_a_job_that_never_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LearningError, match="a job needs 16 processors, more than 8"):
        read_jobs(written(tmp_path, LOG), JobSettings(processors=8))


def test_jobs_are_ordered_and_what_is_no_job_is_counted(tmp_path: Path) -> None:
    skipped: Counter[str] = Counter()
    log = LOG.replace("2 5170", "2 5000") + "4 9000 -1 -1 -1 -1 -1 -1 -1 -1 5\n"
    jobs = read_jobs(written(tmp_path, log), None, skipped)
    assert jobs.submitted_ns.tolist() == [0, 94 * S, 1742 * S]
    assert skipped == {"cancelled before it began": 1}


def test_a_window_of_jobs_begins_at_time_0() -> None:
    jobs = Jobs("log", 4, *(np.array(column, np.int64) for column in ([0, 5, 9], [1, 2, 3], [1, 2, 4], [1, 1, 1])))
    part = jobs.window(1, 2)
    assert part.submitted_ns.tolist() == [0, 4]
    assert part.run_ns.tolist() == [2, 3]
    assert jobs.window(1, 2, at_once=True).submitted_ns.tolist() == [0, 0]
    with pytest.raises(LearningError, match="no job from 3 on"):
        jobs.window(3, 1)


def test_bursty_family_is_reproducible_and_bursty() -> None:
    settings = BurstySettings(tasks=3000)
    first, again, other = (bursty_input(seed, settings).workload for seed in (0, 0, 1))
    assert (first.submitted_ns == again.submitted_ns).all()
    assert (first.access_object == again.access_object).all()
    assert (first.submitted_ns[:100] != other.submitted_ns[:100]).any()
    gaps = np.diff(first.submitted_ns)
    # The standard deviation of a Poisson process's gaps equals their mean.
    assert gaps.std() > 1.3 * gaps.mean()
    assert 0.5 < (first.kinds == ANY_ENGINE).mean() < 0.9


def test_popular_data_changes() -> None:
    workload = bursty_input(0, BurstySettings(tasks=4000, drift=2000)).workload
    middle = int(workload.access_start[2000])
    early, late = (
        np.bincount(part, minlength=8192).argmax()
        for part in (workload.access_object[:middle], workload.access_object[middle:])
    )
    assert [int(early), int(late)] == [0, 819]


def test_a_synthetic_input_can_be_decided_on() -> None:
    assert len(decided(bursty_input(0, BurstySettings(tasks=60)))) == 60


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(LearningError, match="time_compression is 0"):
        BlockSettings(time_compression=0)
    with pytest.raises(LearningError, match="edge_spread"):
        GraphSettings(edge_spread=-1)
    with pytest.raises(LearningError, match="quiet_hz"):
        BurstySettings(quiet_hz=0)
    with pytest.raises(LearningError, match="estimate_factor"):
        JobSettings(estimate_factor=0.5)


def test_cloud_physics_has_the_documented_requests_and_writes() -> None:
    made = block_input(given("cloudPhysicsIO.csv"))
    assert len(made.workload) == 113_872
    starts = made.workload.access_start[:-1]
    assert int(made.workload.access_is_write[starts].sum()) == 66_898
    assert made.workload.submitted_ns[-1] <= 7201 * S // 100


def test_hetero_spotri_is_decided_on_task_by_task() -> None:
    made = graph_input(given("hetero_spotri_spotri-320-10.txt"))
    assert len(made.workload) == 660
    assert made.has_graph
    assert (made.workload.kinds == EngineKind.CPU.bit).sum() == 30
    assert len(decided(made, 40)) == 40


def test_lublin_estimates_equal_run_times() -> None:
    jobs = read_jobs(given("lublin_256.swf"))
    assert (len(jobs), jobs.total) == (10_000, 256)
    assert (jobs.estimate_ns == jobs.run_ns).all()


def test_settings_beyond_64_bits_are_refused(tmp_path: Path) -> None:
    huge = 10**30
    blocks, graph = written(tmp_path, BLOCKS), tmp_path / "graph"
    graph.write_text(GRAPH)
    with pytest.raises(LearningError, match="int_operations of task 0 are not between"):
        block_input(blocks, BlockSettings(operations_per_byte=huge))
    with pytest.raises(LearningError, match="the size of object 0 is not between"):
        graph_input(graph, GraphSettings(edge_bytes=huge))
    with pytest.raises(LearningError, match="the time of task 4 is not between"):
        graph_input(graph, GraphSettings(copies=2, interval_ns=huge))
