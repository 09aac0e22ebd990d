"""Readers of published traces: values of good lines, and errors for bad ones."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import pytest

from controller.cluster.hardware import Cluster, DeviceRequest, Request, Shares
from controller.cluster.workloads import files
from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.values import (
    BlockRequest,
    DutyCycle,
    Edge,
    Run,
    Task,
)
from dataplane.topology.values import DeviceKind

S = 1_000_000_000
DATA = Path(__file__).parents[5] / "shared" / "data"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
)
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
BLOCKS = "version,time,op,size,lbn\n"
RUNS = "value,runtime,starttime,VM_id\n"
DUTY = "device,time_s,busy\n"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text)
    return path


def given(name: str) -> Path:
    """Return a real trace if it is on this machine."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{path} is missing")
    return path


def test_openb_pods(tmp_path: Path) -> None:
    rows = "a,12000,16384,1,460,V100M16|T4,LS,Running,100,400,110\nb,500,1024,0,0,,BE,Pending,160,170,\n"
    assert list(files.openb_pods(written(tmp_path, OPENB + rows))) == [
        Task(
            "a",
            0,
            Request(12000, 16384 << 20, (DeviceRequest(DeviceKind.GPU, 1, 460, frozenset({"V100M16", "T4"})),)),
            {DeviceKind.GPU: 290 * S},
            labels={"qos": "LS", "phase": "Running"},
        ),
        Task("b", 60 * S, Request(500, 1 << 30), None, labels={"qos": "BE", "phase": "Pending"}),
    ]


def test_swf_jobs(tmp_path: Path) -> None:
    text = "; Version: 2\n\n1 5 -1 120 16 -1 -1 -1 300 2048 1 -1 -1 0 -1 -1 -1 -1\n"
    assert files.swf_jobs(written(tmp_path, text)) == (
        Task("1", 5 * S, Request(1000, 2048 << 10), {DeviceKind.CPU: 120 * S}, 300 * S, 16),
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_end_of_line(tmp_path: Path, end: str) -> None:
    """A comment hides nothing after its line, and the errors' line numbers stay right."""
    path = tmp_path / "trace"
    lines = ["; Version: 2", "", *(f"{job} 5 -1 120 16" + " -1" * 13 for job in (1, 2))]
    path.write_bytes(end.join([*lines, ""]).encode())
    assert [task.name for task in files.swf_jobs(path)] == ["1", "2"]
    path.write_bytes(end.join([*lines, "3 x"]).encode())
    with pytest.raises(WorkloadError, match=":5: 2 fields"):
        files.swf_jobs(path)
    path.write_bytes((OPENB + "a,1,1,0,0,,LS,Running,0,1,0\n").replace("\n", end).encode())
    assert [task.name for task in files.openb_pods(path)] == ["a"]


def test_block_requests(tmp_path: Path) -> None:
    requests = list(files.block_requests(written(tmp_path, BLOCKS + "1,7,2a,512,9\n1,8,28,4096,10\n")))
    assert requests == [BlockRequest(0, 9, 512, True), BlockRequest(S, 10, 4096, False)]


def test_spotri_graphs(tmp_path: Path) -> None:
    graph = files.spotri_graph(written(tmp_path, "1 0.5 -1\n2 1.5 0.25 1\n3 1 2 1,2\n"))
    assert graph.edges == (Edge("1", "2"), Edge("1", "3"), Edge("2", "3"))
    assert [task.duration_ns for task in graph.tasks][:2] == [
        {DeviceKind.CPU: S // 2},
        {DeviceKind.CPU: 3 * S // 2, DeviceKind.GPU: S // 4},
    ]


def test_azure_runs(tmp_path: Path) -> None:
    text = RUNS + "20602.95,30.01,2023-06-23 15:46:48.880,0\n"
    assert list(files.azure_runs(written(tmp_path, text))) == [
        Run("0", 1_687_535_208_880_000_000, 30_010_000_000, 20602.95)
    ]


def test_duty_cycles(tmp_path: Path) -> None:
    cycles = files.duty_cycles(written(tmp_path, DUTY + "gpu0,0,0.5\ngpu1,0,1\ngpu0,60,0\n"))
    assert cycles == (DutyCycle("gpu0", (0, 60 * S), (0.5, 0.0)), DutyCycle("gpu1", (0,), (1.0,)))


Reader = Callable[[Path], object]


def everything(reader: Callable[[Path], Iterable[object]]) -> Reader:
    return lambda path: list(reader(path))


@pytest.mark.parametrize(
    ("reader", "text", "problem"),
    [
        (everything(files.openb_pods), "name,cpu\n", ":1: the columns are"),
        (everything(files.openb_pods), OPENB + "a,1\n", ":2: 2 fields, not 11"),
        (everything(files.openb_pods), OPENB + "a,x,1,0,0,,LS,Running,0,1,0\n", ":2: cpu_milli is 'x', not a number"),
        (everything(files.openb_pods), OPENB + "a,1,1,2,500,,LS,Running,0,1,0\n", ":2: 2 GPUs of 500 thousandths"),
        (everything(files.openb_pods), OPENB + "a,1,1,0,500,,LS,Running,0,1,0\n", ":2: gpu_milli is 500 without a GPU"),
        (
            everything(files.openb_pods),
            OPENB + "a,1,1,0,0,,LS,Running,9,1,9\n",
            ":2: deletion_time is 1, before creation_time 9",
        ),
        (everything(files.openb_pods), OPENB + ",1,1,0,0,,LS,Running,0,1,0\n", ":2: name is empty"),
        (everything(files.openb_pods), OPENB + '"a,1,1,0,0,,LS,Running,0,1,0\n', ":2: unexpected end of data"),
        (everything(files.openb_nodes), NODES + "a,1,1,2,\n", ":2: gpu is 2 and model ''"),
        (everything(files.openb_nodes), NODES + "a,1,0,0,\n", ":2: memory_mib is 0, less than 1"),
        (everything(files.openb_pods), OPENB + "a,1,1,0,0,,LS,Running,0,1,0\n" * 2, ":3: name a is that of line 2"),
        (everything(files.openb_pods), OPENB.replace("qos,", ""), ":1: the columns are name, cpu_milli"),
        (everything(files.openb_pods), "qos," + OPENB, ":1: the columns are qos, name"),
        (everything(files.openb_nodes), NODES + "a,1,1,9999999,T4\n", ":2: gpu is 9999999, more than 1024"),
        (everything(files.openb_nodes), NODES + "a,1,1,0,\n" * 2, ":3: sn a is that of line 2"),
        (everything(files.swf_jobs), "; x\n1 2 3\n", ":2: 3 fields, not 11 to 18"),
        (everything(files.swf_jobs), "1 5 -1 -2 16" + " -1" * 13, ":1: run is -2, less than -1"),
        (everything(files.swf_jobs), "1 5 -1 1 1.5" + " -1" * 13, ":1: processors is 1.5, not a whole number"),
        (everything(files.swf_jobs), "1 5 -1 1 9999999" + " -1" * 13, ":1: processors is 9999999, more than 1048576"),
        (everything(files.swf_jobs), "1 1_000 -1 1 1" + " -1" * 13, ":1: submit is '1_000', not a number"),
        (everything(files.block_requests), BLOCKS + "2,1,2a,1,1\n", ":2: version is 2, not 1"),
        (everything(files.block_requests), BLOCKS + "1,1,read,1,1\n", ":2: op is 'read', not a SCSI command"),
        (everything(files.block_requests), BLOCKS + "1,5,28,1,1\n1,4,28,1,1\n", ":3: time is 4, before 5"),
        (files.spotri_graph, "", "no tasks"),
        (files.spotri_graph, "1 1 -0.5\n", ":1: gpu_s is -0.5, neither a time nor -1"),
        (files.spotri_graph, "1 nan 1\n", ":1: cpu_s is 'nan'"),
        (files.spotri_graph, "1 1 1\n1 1 1\n", ":2: task 1 is that of line 1, too"),
        (files.spotri_graph, "7 1 1\n8 1 1 7,7\n", ":2: task 8 has predecessor 7 more than once"),
        (files.spotri_graph, "1 1 1 2\n", ":1: task 1 follows 2, but there is no task 2"),
        (files.spotri_graph, "1 1 1 2\n2 1 1 1\n", "in a cycle: 1, 2"),
        (everything(files.azure_runs), RUNS + "1,1,yesterday,0\n", ":2: starttime is 'yesterday', not a time"),
        (files.duty_cycles, DUTY + "g,0,1.5\n", ":2: busy is 1.5, more than 1"),
        (files.duty_cycles, DUTY + "g,1,0\ng,1,0\n", ":3: time_s is 1, not after"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, reader: Reader, text: str, problem: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        reader(written(tmp_path, text))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="none: No such file or directory"):
        list(files.swf_jobs(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadError, match="binary:1: is not UTF-8 text"):
        list(files.swf_jobs(tmp_path / "binary"))


HUGE = [("9" * 30, "more than"), ("9" * 400, "more than"), ("1e400", "more than"), ("-" + "9" * 400, "less than")]
HUGE += [("9" * 5000, "more than"), ("1e9999", "more than"), ("1e99999", "not a number"), ("\u0669", "not a number")]
EVERY_LINE: list[tuple[Reader, str, str, tuple[int, ...]]] = [
    (everything(files.openb_pods), OPENB, "a,1,1,1,500,,LS,Running,0,1,0", (1, 2, 3, 4, 8, 9, 10)),
    (everything(files.openb_nodes), NODES, "a,1,1,1,T4", (1, 2, 3)),
    (
        everything(files.swf_jobs),
        "",
        "1 5 -1 120 16 -1 -1 16 300 2048 1 -1 -1 0 -1 -1 -1 -1",
        (0, 1, 3, 4, 7, 8, 9, 10),
    ),
    (everything(files.block_requests), BLOCKS, "1,7,2a,512,9", (0, 1, 3, 4)),
    (files.spotri_graph, "", "1 0.5 1.5", (1, 2)),
    (everything(files.azure_runs), RUNS, "1,1,2023-06-23,0", (0, 1)),
    (files.duty_cycles, DUTY, "g,0,1", (1, 2)),
]
"""Readers with a header, a line, and the numbers that are read of it."""


@pytest.mark.parametrize(("text", "problem"), HUGE, ids=range(len(HUGE)))
@pytest.mark.parametrize(("reader", "header", "line", "numbers"), EVERY_LINE, ids=range(len(EVERY_LINE)))
def test_every_huge_number_is_named(
    tmp_path: Path, reader: Reader, header: str, line: str, numbers: tuple[int, ...], text: str, problem: str
) -> None:
    separator = "," if header else " "
    fields = line.split(separator)
    for at in numbers:
        changed = separator.join([*fields[:at], text, *fields[at + 1 :]])
        path = written(tmp_path, f"{header}{changed}\n")
        with pytest.raises(WorkloadError) as caught:
            reader(path)
        assert problem in str(caught.value)
        assert len(str(caught.value)) < 200 + len(str(tmp_path))


def swf(number: int, submit: object, run: object, processors: object, status: int = 1, requested: int = -1) -> str:
    return f"{number} {submit} -1 {run} {processors} -1 -1 {requested} -1 -1 {status} -1 -1 -1 -1 -1 -1 -1\n"


def test_swf_lines_that_are_no_jobs_are_counted(tmp_path: Path) -> None:
    lines = (
        swf(1, 0, 10, 4),
        swf(2, 3, -1, -1, 5),
        swf(3, 3, 0, 0, 5),
        swf(4, 4, -1, 2),
        swf(5, 4, 9, -1),
        swf(6, 4, 9, 0, requested=0),
        swf(7, -1, 9, 1),
        swf(1, 2, 4, 4, 2),
        swf(1, 6, 4, 4, 3),
        swf(8, 7, 5, 2, 5),
        swf(9, 8, 0, -1, requested=3),
    )
    skipped: Counter[str] = Counter()
    jobs = files.swf_jobs(written(tmp_path, "".join(lines)), skipped)
    assert [(job.name, job.instances) for job in jobs] == [("1", 4), ("8", 2), ("9", 3)]
    assert skipped == {
        "cancelled before it began": 2,
        "its run time is unknown": 1,
        "its number of processors is unknown": 2,
        "its submission time is unknown": 1,
        "a further line of its job, such as a partial execution": 2,
    }


def test_swf_jobs_are_ordered_by_submission(tmp_path: Path) -> None:
    jobs = files.swf_jobs(written(tmp_path, swf(1, 10, 1, 1) + swf(2, 3, 1, 1) + swf(3, 3, 1, 1)))
    assert [job.name for job in jobs] == ["2", "3", "1"]


def test_swf_times_may_have_fractions(tmp_path: Path) -> None:
    (job,) = files.swf_jobs(written(tmp_path, swf(1, "0.5", "10.50", "4.00")))
    assert (job.arrival_ns, job.duration_ns, job.instances) == (S // 2, {DeviceKind.CPU: 21 * S // 2}, 4)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_swf_as_archives_ship_it(tmp_path: Path, packed: bool) -> None:
    data = b"\xef\xbb\xbf; Universit\xe9\r\n# more\r\n\r\n1 0 5 10 4 -1 -1 4 20 -1 1\r\n"
    path = tmp_path / "log.swf"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert [job.name for job in files.swf_jobs(path)] == ["1"]


def test_damaged_swf_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "log.swf.gz"
    packed = gzip.compress(swf(1, 0, 1, 1).encode() * 1000)
    for data in (packed[:-20], packed[:12] + b"\xff" * 20 + packed[32:], packed[:-4] + b"0000", packed[:3]):
        path.write_bytes(data)
        with pytest.raises(WorkloadError, match=r"log\.swf\.gz: is a damaged gzip file"):
            files.swf_jobs(path)
    path.write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(WorkloadError, match=r"log\.swf\.gz:1: has more than 1 MiB"):
        files.swf_jobs(path)
    path.write_bytes(swf(1, 0, 1, 1).encode() + b"1 0 \xe9\n")
    with pytest.raises(WorkloadError, match=r"log\.swf\.gz:2: is not UTF-8 text"):
        files.swf_jobs(path)


def test_csv_files_may_have_more_columns_in_any_order(tmp_path: Path) -> None:
    plain = list(files.openb_nodes(written(tmp_path, NODES + "a,1,2,1,T4\n")))
    other = "\ufeffmodel,rack,gpu,memory_mib,sn,cpu_milli\nT4,7,1,2,a,1\n\n"
    assert list(files.openb_nodes(written(tmp_path, other))) == plain


def test_other_scsi_commands_are_counted(tmp_path: Path) -> None:
    lines = "1,5,35,0,0\n1,6,2A,512,1\n1,7,8a,512,1\n1,7,88,512,1\n1,7,28,512,2\n"
    skipped: Counter[str] = Counter()
    requests = list(files.block_requests(written(tmp_path, BLOCKS + lines), skipped))
    assert requests == [BlockRequest(0, 1, 512, True), BlockRequest(S, 2, 512, False)]
    assert sum(skipped.values()) == 3
    assert skipped["SCSI command 35, neither READ(10) nor WRITE(10)"] == 1


def test_nodes_of_openb(tmp_path: Path) -> None:
    text = NODES + "a,32000,262144,0,\nb,96000,1024,2,T4\n"
    plain, with_gpus = files.openb_nodes(written(tmp_path, text))
    assert (plain.name, plain.cpu_milli, plain.memory_bytes, plain.devices) == ("a", 32000, 256 << 30, ())
    assert [(device.number, device.kind, device.model) for device in with_gpus.devices] == [
        (0, DeviceKind.GPU, "T4"),
        (1, DeviceKind.GPU, "T4"),
    ]


def test_the_real_openb_nodes_take_the_real_pods() -> None:
    cluster = Cluster.of(files.openb_nodes(given("openb_node_list_all_node.csv")))
    assert (len(cluster.nodes), sum(len(node.devices) for node in cluster.nodes.values())) == (1523, 6212)
    pods = list(islice(files.openb_pods(given("openb_pod_list_default.csv")), 300))
    placed = []
    for pod in pods:
        name = next((name for name in cluster.nodes if cluster.fits(name, pod.request) is None), None)
        if name is not None:
            placed.append((name, cluster.choose(name, pod.request)))
            cluster = cluster.take(*placed[-1])
    assert len(placed) == len(pods)
    for name, shares in placed:
        cluster = cluster.release(name, shares)
    assert all(shares == Shares() for shares in cluster.held.values())


def test_the_real_openb_pods() -> None:
    pods = list(files.openb_pods(given("openb_pod_list_default.csv")))
    shared = [pod for pod in pods if pod.request.devices and pod.request.devices[0].thousandths < 1000]
    assert (len(pods), len(shared), sum(not pod.request.devices for pod in pods)) == (8152, 3078, 1088)


def test_the_real_batch_jobs_blocks_graph_and_runs() -> None:
    jobs = list(files.swf_jobs(given("lublin_256.swf")))
    assert (len(jobs), max(job.instances for job in jobs), {job.limit_ns for job in jobs}) == (10_000, 256, {None})
    blocks = list(files.block_requests(given("cloudPhysicsIO.csv")))
    assert (len(blocks), len({request.block for request in blocks})) == (113_872, 48_974)
    graph = files.spotri_graph(given("hetero_spotri_spotri-320-10.txt"))
    cpu_only = sum(DeviceKind.GPU not in (task.duration_ns or {}) for task in graph.tasks)
    assert (len(graph.tasks), cpu_only) == (660, 30)
    assert len(list(files.azure_runs(given("azurevm_matrixmath_long_eastus_D8sv5.csv")))) == 10_410
