"""Readers of published traces: values of good lines, and errors for bad ones."""

from __future__ import annotations

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
    assert list(files.swf_jobs(written(tmp_path, text))) == [
        Task("1", 5 * S, Request(1000, 2048 << 10), {DeviceKind.CPU: 120 * S}, 300 * S, 16)
    ]


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
        (everything(files.openb_pods), OPENB + "a,1,1,0,0,,LS,Running,9,1,9\n", ":2: deletion_time is 1, less than 9"),
        (everything(files.openb_pods), OPENB + ",1,1,0,0,,LS,Running,0,1,0\n", ":2: name is empty"),
        (everything(files.openb_pods), OPENB + '"a,1,1,0,0,,LS,Running,0,1,0\n', ":2: unexpected end of data"),
        (everything(files.openb_nodes), NODES + "a,1,1,2,\n", ":2: gpu is 2 and model ''"),
        (everything(files.openb_nodes), NODES + "a,1,0,0,\n", ":2: memory_mib is 0, less than 1"),
        (everything(files.swf_jobs), "; x\n1 2 3\n", ":2: 3 fields, not 18"),
        (everything(files.swf_jobs), "1 5 -1 -1 16" + " -1" * 13, ":1: run is -1, less than 0"),
        (everything(files.swf_jobs), "1 5 -1 1 -1" + " -1" * 13, ":1: requested_processors is -1, less than 1"),
        (everything(files.block_requests), BLOCKS + "2,1,2a,1,1\n", ":2: version is 2, not 1"),
        (everything(files.block_requests), BLOCKS + "1,1,2b,1,1\n", ":2: op is '2b', not one of 2a, 28"),
        (everything(files.block_requests), BLOCKS + "1,5,28,1,1\n1,4,28,1,1\n", ":3: time is 4, before 5"),
        (files.spotri_graph, "", "no tasks"),
        (files.spotri_graph, "1 1 -0.5\n", ":1: gpu_s is -0.5, neither a time nor -1"),
        (files.spotri_graph, "1 nan 1\n", ":1: cpu_s is nan"),
        (files.spotri_graph, "1 1 1\n1 1 1\n", "duplicate task 1"),
        (files.spotri_graph, "1 1 1 2\n", "there is no task 2"),
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
    with pytest.raises(WorkloadError, match="binary: is not UTF-8 text"):
        list(files.swf_jobs(tmp_path / "binary"))


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
