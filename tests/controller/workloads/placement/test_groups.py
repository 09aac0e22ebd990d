"""Groups: their pods, changes of size and template, failures and ends."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, PodGroup
from controller.apiserver.resources.pod import Container, ContainerStatus, Phase, Restart
from controller.apiserver.resources.pod_group import AllReduce, GroupPhase, OnFailure, PodGroupSpec, PodGroupStatus
from controller.workloads.placement.settings import PlacementSettings, RetrySettings
from controller.workloads.placement.template import environment_of, pod_of, template_hash
from controller.workloads.placement.values import Action, CreatePod, DeletePod, SetGroup, SetPod
from tests.controller.workloads.placement.knowing import S, decide, member, node, pod, view_of
from tests.controller.workloads.placement.serving_placement import TEMPLATE, group_of

BOUND = PodGroupStatus(phase=GroupPhase.BOUND)
OTHER = replace(TEMPLATE, containers=(Container(name="main", image="other"),))


def with_status(group: PodGroup, status: PodGroupStatus = PodGroupStatus()) -> PodGroup:  # noqa: B008 - frozen
    return replace(group, metadata=replace(group.metadata, uid="uid", revision=1), status=status)


def with_template(group: PodGroup, template: object = OTHER) -> PodGroup:
    return replace(group, spec=replace(group.spec, template=template))


def deleted(actions: tuple[Action, ...]) -> list[str]:
    return [action.pod.metadata.name for action in actions if isinstance(action, DeletePod)]


def created(actions: tuple[Action, ...]) -> list[str]:
    return [action.pod.metadata.name for action in actions if isinstance(action, CreatePod)]


def group_set(actions: tuple[Action, ...]) -> PodGroupStatus:
    (status,) = (action.group.status for action in actions if isinstance(action, SetGroup))
    return status


def test_missing_pods_are_made_and_surplus_ones_go_last_first() -> None:
    group = with_status(group_of("g", 3))
    actions = decide(view_of(group, member(group, 1), member(group, 4), member(group, 3, "h1"), node("h1")), 1).actions
    assert created(actions) == ["g-0", "g-2"]
    assert deleted(actions) == ["g-4", "g-3"]


def test_pod_gets_the_groups_labels_and_environment() -> None:
    group = replace(
        with_status(group_of("g", 2)), metadata=Metadata(name="g", uid="u", labels={"app": "x", "millrace/z": "y"})
    )
    made = pod_of(group, 1, None)
    assert made.metadata.labels == {
        "app": "x",
        "millrace/group": "g",
        "millrace/group-uid": "u",
        "millrace/index": "1",
        "millrace/template": template_hash(group),
    }
    assert made.spec.group == "g"


def test_workers_get_their_job() -> None:
    group = with_status(group_of("g", 2, allreduce=AllReduce(job="sums")))
    told = environment_of(group, 1, "10.9.0.1:9560")
    assert {key: told[key] for key in sorted(told)} == {
        "MILLRACE_GROUP": "g",
        "MILLRACE_INDEX": "1",
        "MILLRACE_JOB": "sums",
        "MILLRACE_JOB_SERVICE": "10.9.0.1:9560",
        "MILLRACE_RANK": "1",
        "MILLRACE_SIZE": "2",
        "MILLRACE_WORLD_SIZE": "2",
        "RANK": "1",
        "WORLD_SIZE": "2",
    }
    assert environment_of(with_service(group), 0, "10.9.0.1:9560")["MILLRACE_JOB_SERVICE"] == "unix:jobs"


def with_service(group: PodGroup) -> PodGroup:
    return replace(group, spec=replace(group.spec, allreduce=AllReduce(service="unix:jobs")))


def test_job_without_a_service_is_reported() -> None:
    group = with_status(group_of("g", 2, allreduce=AllReduce()))
    actions = decide(view_of(group), 1).actions
    assert (created(actions), "name the job service" in group_set(actions).reasons[0]) == ([], True)


def test_taken_name_is_reported_once() -> None:
    group = with_status(group_of("g", 2))
    status = group_set(decide(view_of(group, pod("g-1")), 1).actions)
    assert status.reasons == ("pod g-1 exists already and is not one of this group: delete one of them",)
    assert decide(view_of(replace(group, status=status), pod("g-1")), 1).actions == ()


def test_pods_of_a_group_of_that_name_before_go_first() -> None:
    before = with_status(group_of("g", 2))
    group = replace(before, metadata=replace(before.metadata, uid="other"))
    actions = decide(view_of(group, member(before, 0), member(before, 1)), 1).actions
    assert (deleted(actions), created(actions)) == (["g-0", "g-1"], ["g-1"])


def test_fields_missing_from_a_template_do_not_count() -> None:
    group = group_of("g", 2)
    assert template_hash(group) == template_hash(replace(group, spec=replace(group.spec, size=3, priority=7)))
    assert template_hash(group) == template_hash(with_template(group, replace(TEMPLATE, stop_grace_s=10.0)))
    assert template_hash(group) != template_hash(with_template(group, replace(TEMPLATE, stop_grace_s=11.0)))


def test_pods_of_an_old_template_are_replaced_one_by_one() -> None:
    old = with_status(group_of("g", 3), BOUND)
    group = with_template(old)
    nodes = [node(f"h{number}") for number in range(3)]
    running = [member(old, index, f"h{index}") for index in range(3)]
    assert deleted(decide(view_of(group, *nodes, *running), 1).actions) == ["g-0"]
    starting = member(group, 0, "h0", phase=Phase.STARTING)
    assert decide(view_of(group, *nodes, starting, *running[1:]), 1).actions == ()
    assert deleted(decide(view_of(group, *nodes, member(group, 0, "h0"), *running[1:]), 1).actions) == ["g-1"]
    waiting = [member(old, index) for index in range(3)]
    assert deleted(decide(view_of(group, *waiting), 1).actions) == ["g-0", "g-1", "g-2"]


def test_workers_of_a_job_are_replaced_together() -> None:
    old = with_service(with_status(group_of("g", 2), BOUND))
    running = [member(old, index, f"h{index}") for index in range(2)]
    group = replace(old, spec=replace(old.spec, size=3))
    actions = decide(view_of(group, node("h0"), node("h1"), *running), 1).actions
    assert (deleted(actions), created(actions)) == (["g-0", "g-1"], ["g-2"])


def test_failed_pod_is_retried_with_growing_waits_up_to_a_limit() -> None:
    group = with_status(group_of("g", 1), BOUND)
    settings = PlacementSettings(retries=RetrySettings(most=3, first_wait_s=10))
    for retries, wait_s in ((0, 10), (1, 20), (2, 40)):
        view = view_of(group, member(group, 0, phase=Phase.FAILED, retries=retries, reasons=("exit code 3",)))
        early = decide(view, wait_s - 0.1, settings)
        assert (early.actions, early.due_ns) == ((), wait_s * S)
        (again,) = decide(view, wait_s, settings).actions
        assert isinstance(again, SetPod)
        assert (again.pod.status.phase, again.pod.status.retries) == (Phase.PENDING, retries + 1)
        assert again.pod.status.reasons[1] == "exit code 3"
    for retries, restart, limit in ((3, Restart.ALWAYS, None), (0, Restart.NEVER, None), (0, Restart.ON_FAILURE, 2)):
        group = with_status(group_of("g", 1, restart=restart, restart_limit=limit), BOUND)
        status = group_set(
            decide(view_of(group, member(group, 0, phase=Phase.FAILED, retries=retries)), 1, settings).actions
        )
        assert (status.phase, status.reasons) == (GroupPhase.FAILED, ("pod g-0 has failed",))


def test_group_finishes_with_its_pods_and_fails_once_all_ended() -> None:
    group = with_status(group_of("g", 2, restart=Restart.NEVER), BOUND)
    done, lost = member(group, 0, phase=Phase.SUCCEEDED), member(group, 1, phase=Phase.FAILED)
    assert decide(view_of(group, done, member(group, 1, "h1"), node("h1")), 1).actions == ()
    finished = group_set(decide(view_of(group, done, member(group, 1, phase=Phase.SUCCEEDED)), 1).actions)
    assert finished.phase is GroupPhase.FINISHED
    assert group_set(decide(view_of(group, done, lost), 1).actions).phase is GroupPhase.FAILED
    status = group_set(decide(view_of(group, member(group, 0, "h1"), lost, node("h1")), 1).actions)
    assert (status.phase, status.reasons) == (GroupPhase.BOUND, ("pod g-1 has failed",))
    # An ended group is not touched, whatever happens to its pods, unless its template changes.
    over = replace(group, status=finished)
    assert decide(view_of(over), 1).actions == ()
    assert group_set(decide(view_of(with_template(over), done), 1).actions).phase is GroupPhase.PENDING


def test_group_not_placed_in_time_fails_with_its_pods() -> None:
    group = with_status(group_of("g", 1, wait_s=30))
    view = view_of(group, member(group, 0))
    early = decide(view, 29.9)
    assert (early.actions, early.due_ns) == ((), 30 * S)
    (failed,) = decide(view, 30).actions
    assert isinstance(failed, SetGroup)
    assert (failed.explained, failed.group.status.phase) == (True, GroupPhase.FAILED)
    assert failed.group.status.reasons == ("it was not placed within 30 s",)
    view.take(replace(failed.group, metadata=replace(group.metadata, revision=2)), 30 * S)
    (lost,) = decide(view, 31).actions
    assert isinstance(lost, SetPod)
    assert lost.pod.status.phase is Phase.FAILED


def test_group_without_template_follows_the_users_pods() -> None:
    plain = PodGroup(metadata=Metadata(name="g", uid="u", revision=1), spec=PodGroupSpec(size=2, wait_s=5))
    mine = [pod(name, spec=replace(TEMPLATE, group="g")) for name in "ab"]
    assert group_set(decide(view_of(plain, mine[0]), 5).actions).reasons == (
        "it was not placed within 5 s: 1 of 2 pods exist",
    )
    bound = replace(plain, status=BOUND)
    ended = [replace(pod, status=replace(pod.status, phase=Phase.SUCCEEDED)) for pod in mine]
    assert group_set(decide(view_of(bound, *ended), 1).actions).phase is GroupPhase.FINISHED
    assert decide(view_of(*mine), 1).actions == ()  # users remove what they wrote


def test_a_group_of_which_nothing_is_left_is_placed_whole_again() -> None:
    group = with_status(group_of("g", 2, wait_s=30), BOUND)
    view = view_of(group, member(group, 0), member(group, 1))
    status = group_set(decide(view, 1).actions)
    assert (status.phase, status.reasons) == (
        GroupPhase.PENDING,
        ("all of its pods wait: it is placed again as a whole",),
    )
    one_left = view_of(group, member(group, 0, "h1"), member(group, 1), node("h1"))
    assert decide(one_left, 1).actions == ()


def whole(size: int = 3, status: PodGroupStatus = BOUND) -> PodGroup:
    """Return a group that starts again as a whole."""
    return with_status(group_of("g", size, on_failure=OnFailure.GROUP), status)


RESTARTED = (ContainerStatus(name="main", state="running", restarts=1),)


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ({"phase": Phase.FAILED}, "pod g-1 has failed"),
        ({"where": "h1", "containers": RESTARTED}, "pod g-1 was restarted"),
        ({"epoch": 1}, "pod g-1 has lost its node"),
    ],
)
def test_a_failing_worker_restarts_its_whole_group(trouble: dict[str, Any], told: str) -> None:
    group, nodes = whole(), [node(f"h{number}") for number in range(3)]
    others = [member(group, index, f"h{index}") for index in (0, 2)]
    view = view_of(group, *nodes, *others, member(group, 1, **trouble))
    early = decide(view, 9.9)
    assert (early.actions, early.due_ns) == ((), 10 * S)
    status = group_set(decide(view, 10).actions)
    assert (status.phase, status.starts_again, status.bound) == (GroupPhase.PENDING, 1, 0)
    assert status.reasons == (f"{told}: all of its pods start again, 1 of 6 times",)
    # Its pods are old now, whoever decides next, and go together; new ones come when their names are free.
    again = replace(group, status=status)
    old = [*others, member(group, 1, **trouble)]
    assert deleted(decide(view_of(again, *nodes, *old), 11).actions) == ["g-0", "g-1", "g-2"]
    actions = decide(view_of(again, *nodes, member(group, 0, "h0"), member(again, 2)), 12).actions
    assert (deleted(actions), created(actions)) == (["g-0"], ["g-1"])
    fresh = [member(again, index, f"h{index}") for index in range(3)]
    assert (
        decide(view_of(replace(again, status=replace(status, phase=GroupPhase.BOUND)), *nodes, *fresh), 13).actions
        == ()
    )


def test_group_that_keeps_failing_fails_and_ends_its_rest() -> None:
    group = whole(2, replace(BOUND, starts_again=6))
    running, lost = member(group, 0, "h0"), member(group, 1, phase=Phase.FAILED)
    status = group_set(decide(view_of(group, node("h0"), running, lost), 1).actions)
    assert (status.phase, status.starts_again) == (GroupPhase.FAILED, 6)
    assert status.reasons == ("pod g-1 has failed; it has started again 6 times",)
    over = replace(group, status=status)
    assert deleted(decide(view_of(over, node("h0"), running, lost), 2).actions) == ["g-0"]


def test_whole_groups_need_a_template_and_count_no_lost_whole() -> None:
    with pytest.raises(ValueError, match="on_failure: a template is required"):
        PodGroupSpec(size=2, on_failure=OnFailure.GROUP)
    group = whole(2)
    status = group_set(decide(view_of(group, *(member(group, index, epoch=1) for index in range(2))), 1).actions)
    assert (status.phase, status.starts_again) == (GroupPhase.PENDING, 0)
    done = [member(group, index, phase=Phase.SUCCEEDED) for index in range(2)]
    assert group_set(decide(view_of(group, *done), 1).actions).phase is GroupPhase.FINISHED
