"""Who gets which queue of a device."""

from __future__ import annotations

import pytest

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


def test_next_rule_applies_where_the_first_is_exhausted() -> None:
    rules = (GrantRule("eth0", (0,), "packet_v2", ROOT), GrantRule("eth0", (4,), "packet_v3", ROOT))
    assert granted(rules, {("eth0", 0): OTHER}, ME, "eth0", "") == Granted("packet_v3", (4,))
