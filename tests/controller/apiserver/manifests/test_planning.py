"""Changes that a manifest requires, given what exists."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.apiserver.manifests import read_text
from controller.apiserver.manifests.planning import Action, step_of
from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Phase

(WANTED,) = read_text("pod: {name: a, image: x, cpu: 1, priority: 3, labels: {app: web}}", "s.yaml")
FOUND = WANTED.resource


def stored_pod(**status: object) -> Pod:
    assert isinstance(FOUND, Pod)
    return replace(FOUND, status=replace(FOUND.status, **status))


def test_missing_is_created_and_unchanged_is_left() -> None:
    assert step_of(WANTED, None).action is Action.CREATE
    for phase in Phase:
        assert step_of(WANTED, stored_pod(phase=phase, node="h1")).action is Action.LEAVE


def test_mutable_fields_of_a_running_pod_are_changed() -> None:
    assert isinstance(FOUND, Pod)
    before = replace(
        stored_pod(phase=Phase.RUNNING, node="h1"),
        metadata=replace(FOUND.metadata, labels={}, revision=7),
        spec=replace(FOUND.spec, priority=1, idle_limit_s=5.0),
    )
    step = step_of(WANTED, before)
    assert (step.action, step.changes) == (Action.CHANGE, ("priority", "idle_limit_s", "labels"))
    assert step.resource.metadata.revision == 7
    assert step.resource.metadata.labels == {"app": "web"}


@pytest.mark.parametrize(
    ("status", "changed", "message"),
    [
        ({"phase": Phase.RUNNING, "node": "h1"}, {"profile": "x"}, "its profile cannot change while it is on node h1"),
        ({"phase": Phase.SUCCEEDED}, {"priority": 9}, "it has succeeded: delete it first (millrace pod delete a)"),
    ],
)
def test_immutable_fields_are_refused_with_the_reason(
    status: dict[str, object], changed: dict[str, object], message: str
) -> None:
    assert isinstance(FOUND, Pod)
    before = replace(stored_pod(**status), spec=replace(FOUND.spec, **changed))
    step = step_of(WANTED, before)
    assert step.action is Action.REFUSE
    assert step.reason.startswith(message)


def test_all_of_a_pod_that_waits_may_change() -> None:
    assert isinstance(FOUND, Pod)
    before = replace(FOUND, spec=replace(FOUND.spec, profile="x", peers=()))
    assert step_of(WANTED, before).changes == ("profile",)


def test_pods_that_go_or_are_of_a_template_are_left_alone() -> None:
    assert isinstance(FOUND, Pod)
    going = replace(FOUND, metadata=replace(FOUND.metadata, deleting_ns=1))
    assert step_of(WANTED, going).reason == "it is being deleted: apply again once it is gone"
    made = replace(FOUND, metadata=replace(FOUND.metadata, labels={"millrace/group": "g"}))
    assert step_of(WANTED, made).reason == "it is created from the template of group g: change that"
