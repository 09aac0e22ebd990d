"""Grants of queues: by device, user and job, one holder each."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from typer import BadParameter

from controller.apiserver.resources.nic import NicMode, PolledQueue, polled_in_words
from controller.apps.cli.cluster.nic_queues import device_and_queue
from controller.workloads.nodes.deciding.queues import Granted, GrantRule, Poller, granted

ROOT = frozenset({0})
RINGS = GrantRule("eth0", (0, 1), "packet_v2", ROOT)
XDP = GrantRule("eth1", (0, 1), "xdp", ROOT)
OF_JOB = GrantRule("eth2", (3,), "packet_v3", frozenset({1000}), frozenset({"resnet", "bert"}))
RULES = (RINGS, XDP, OF_JOB)
ME, OTHER = Poller("worker of job 7", 12, 0), Poller("switch 5", 13, 0)


@pytest.mark.parametrize(
    ("device", "held", "outcome"),
    [
        ("eth0", [], Granted("packet_v2", (0,))),
        ("eth0", [("eth0", 0)], Granted("packet_v2", (1,))),
        ("eth0", [("eth1", 0), ("eth0", 5)], Granted("packet_v2", (0,))),
        ("eth1", [], Granted("xdp", (0, 1))),
        ("eth1", [("eth1", 7)], "queue 7 of eth1 is held by switch 5 (process 13, user 0)"),
        ("eth9", [], "no queue of eth9 is granted on this node"),
        (
            "eth0",
            [("eth0", 0), ("eth0", 1)],
            "; ".join(f"queue {queue} of eth0 is held by switch 5 (process 13, user 0)" for queue in (0, 1)),
        ),
    ],
)
def test_free_queue_is_granted(device: str, held: list[tuple[str, int]], outcome: Granted | str) -> None:
    assert granted(RULES, dict.fromkeys(held, OTHER), ME, device, "") == outcome


@pytest.mark.parametrize(
    ("user", "job", "outcome"),
    [
        (1000, "bert", Granted("packet_v3", (3,))),
        (1000, "gpt", "queues of eth2 are granted to jobs bert, resnet, not to gpt"),
        (1000, "", "queues of eth2 are granted to jobs bert, resnet, not to no job"),
        (0, "bert", "queues of eth2 are granted to user 1000, not to user 0"),
    ],
)
def test_grants_are_for_users_and_their_jobs(user: int, job: str, outcome: Granted | str) -> None:
    assert granted(RULES, {}, Poller("worker", 12, user), "eth2", job) == outcome


def test_table_cell_has_queues_and_frames() -> None:
    queue = PolledQueue(device="a1", queue=0, kind="xdp", program="p", process=1, user=0, mode=NicMode.HYBRID)
    assert polled_in_words(()) == ""
    busy = replace(queue, received=5, sent=2, dropped=1)
    assert polled_in_words((busy, busy, queue)) == "3: 10 received, 4 sent, 2 dropped"


def test_next_rule_applies_where_the_first_is_exhausted() -> None:
    rules = (GrantRule("eth0", (0,), "packet_v2", ROOT), GrantRule("eth0", (4,), "packet_v3", ROOT))
    assert granted(rules, {("eth0", 0): OTHER}, ME, "eth0", "") == Granted("packet_v3", (4,))


def test_queue_names_of_commands_are_read() -> None:
    assert device_and_queue("eth0") == ("eth0", None)
    assert device_and_queue("eth0:3") == ("eth0", 3)
    assert device_and_queue("eth0:1:3") == ("eth0:1", 3)
    for wrong in ("eth0:", ":1", "eth0:x", "eth0:65536"):
        with pytest.raises(BadParameter, match="is not a device, or DEVICE:QUEUE"):
            device_and_queue(wrong)
