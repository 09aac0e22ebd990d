"""Silent nodes: detection, pods that are placed again, and their rate."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from controller.apiserver.resources import Node, Pod
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Phase
from controller.workloads.placement.settings import FlappingSettings, PlacementSettings, SilenceSettings
from controller.workloads.placement.values import Decided, MarkSilent, ReleaseShare, ReleaseSilent, SetNode
from controller.workloads.placement.view import View
from tests.controller.workloads.placement.knowing import S, decide, deleting, node, pod, share_of, stating, view_of

FAST = PlacementSettings(silence=SilenceSettings(burst=2, nodes_per_s=0.5))


def emptied(decided: Decided) -> list[str]:
    return [action.node for action in decided.actions if isinstance(action, ReleaseSilent)]


def fleet(count: int, silent: int) -> View:
    """Return nodes with one pod each; the first ones have been silent for 45 s and are marked."""
    nodes = [node(f"h{number}", ready=number >= silent) for number in range(count)]
    view = view_of(*nodes, *(pod(f"p{number}", f"h{number}") for number in range(count)))
    for number in range(silent, count):
        view.take(node(f"h{number}", heartbeat=2), 40 * S)
    return view


def test_node_is_silent_once_lease_and_margin_have_passed() -> None:
    view = view_of(node("h1"), node("h2"), pod("a", "h1"))
    view.take(node("h2", heartbeat=2), 44 * S)
    before = decide(view, 44.9)
    assert (before.actions, before.silent, before.due_ns) == ((), (), 45 * S)
    (marked,) = decide(view, 45).actions
    assert isinstance(marked, MarkSilent)
    assert (marked.node.status.ready, marked.node.status.heartbeat_ns) == (False, 1)
    assert marked.why == "silent: no report for 45 s"


def test_marked_nodes_pods_are_released_with_epoch_and_report() -> None:
    view = view_of(node("h1", ready=False), node("h2"), pod("a", "h1"), stating("b", "h1"), pod("c", "h2"))
    view.take(node("h2", heartbeat=2), 44 * S)
    (mark, release) = decide(view, 45).actions
    assert isinstance(mark, MarkSilent)
    assert isinstance(release, ReleaseSilent)
    assert [(entry.pod, entry.epoch, entry.phase, entry.heartbeat_ns) for entry in release.releases] == [
        ("a", 1, Phase.PENDING, 1),
        ("b", 1, Phase.PENDING, 1),
    ]
    assert [entry.reasons[0] for entry in release.releases] == [
        "node h1 is silent for 45 s: the pod is placed again",
        "node h1 is silent for 45 s; the pod names this node, and waits for it",
    ]


def test_evicted_pod_gets_the_evictions_outcome() -> None:
    view = view_of(node("h1", ready=False), node("h2"), pod("a", "h1", phase=Phase.STOPPING, then=Phase.FAILED))
    view.take(node("h2", heartbeat=2), 44 * S)
    release = decide(view, 45).actions[-1]
    assert isinstance(release, ReleaseSilent)
    assert release.releases[0].phase is Phase.FAILED


def test_shortened_lease_takes_effect_with_the_next_report() -> None:
    view = view_of(node("h1", lease_s=100), node("h2"))
    shortened = replace(node("h1"), metadata=replace(node("h1").metadata, revision=2), spec=NodeSpec(lease_s=1))
    view.take(shortened, S)
    assert decide(view, 104).silent == ("h2",)
    assert decide(view, 105).silent == ("h2", "h1")
    view.take(node("h1", heartbeat=3, lease_s=1), 105 * S)
    assert decide(view, 111).silent == ("h2", "h1")


def test_silence_counts_from_zero_after_an_outage_of_the_api() -> None:
    view = view_of(node("h1"), node("h2"), pod("a", "h1"))
    view.count_anew(100 * S)
    assert decide(view, 144).silent == ()
    assert decide(view, 145).silent == ("h1", "h2")


def test_unreported_node_is_not_marked_and_its_pods_are_released() -> None:
    view = view_of(node("h1", heartbeat=0, ready=False), node("h2"), pod("a", "h1"))
    view.take(node("h2", heartbeat=2), 44 * S)
    (release,) = decide(view, 45).actions
    assert isinstance(release, ReleaseSilent)
    assert release.releases[0].heartbeat_ns == 0


def test_silent_nodes_are_emptied_at_a_rate() -> None:
    view = fleet(10, 4)
    assert emptied(decide(view, 45, FAST)) == ["h0", "h1"]
    for name in ("h0", "h1"):
        view.note_emptied(name, 1, 45 * S)
    # Begun releases continue after losses; two more start after four seconds.
    assert emptied(decide(view, 48.9, FAST)) == ["h0", "h1"]
    held = decide(view, 46, FAST)
    assert (held.held, held.due_ns) == (
        "4 of 10 nodes do not report: the pods of 0.5 nodes a second are placed again",
        49 * S,
    )
    assert emptied(decide(view, 49, FAST)) == ["h0", "h1", "h2", "h3"]


def test_silence_of_most_nodes_slows_releases() -> None:
    view = fleet(10, 6)
    first = decide(view, 45, FAST)
    assert emptied(first) == ["h0"]
    assert first.held == "6 of 10 nodes do not report: the pods of 0.01 nodes a second are placed again"
    view.note_emptied("h0", 1, 45 * S)
    assert emptied(decide(view, 79, FAST)) == ["h0"]
    everywhere = replace(FAST, silence=replace(FAST.silence, partition_share=0.6))
    assert emptied(decide(view, 49, everywhere)) == ["h0", "h1", "h2"]


def test_late_nodes_with_a_running_lease_count_as_silent() -> None:
    view = view_of(*(node(f"h{number}", ready=number > 0) for number in range(4)), pod("a", "h0"))
    for number in range(1, 4):  # the last reports of all came within ten seconds
        view.take(node(f"h{number}", heartbeat=2), 10 * S)
    assert emptied(decide(view, 46, FAST)) == []
    assert decide(view, 46, FAST).held == "4 of 4 nodes do not report: no pod is placed again until one does"


def test_deleted_pod_leaves_a_silent_node_in_any_case() -> None:
    view = view_of(node("h0", ready=False), pod("a", "h0"), deleting(pod("b", "h0")))
    (_, release) = decide(view, 45).actions
    assert isinstance(release, ReleaseSilent)
    assert ([entry.pod for entry in release.releases], release.counts) == (["b"], False)


def test_nodes_that_are_away_for_good_do_not_count() -> None:
    gone = [node(f"gone{number}", ready=False) for number in range(20)]
    view = view_of(*gone, node("h0", ready=False), *(node(f"h{number}") for number in (1, 2)), pod("a", "h0"))
    for number in (1, 2):
        view.take(node(f"h{number}", heartbeat=2), 40 * S)
    assert emptied(decide(view, 45, FAST)) == ["h0"]


def test_pods_of_a_missing_node_are_released_after_its_lease() -> None:
    view = view_of(node("h2"), pod("a", "h1"))
    assert [type(action) for action in decide(view, 44).actions] == []
    release = decide(view, 45).actions[-1]
    assert isinstance(release, ReleaseSilent)
    assert release.releases[0].reasons == ("node h1 no longer exists: the pod is placed again",)
    # A node seen to vanish, with its own lease.
    view = view_of(node("h1", lease_s=100), node("h2"), pod("a", "h1"))
    view.remove(Node, "h1", 5)
    assert not any(isinstance(action, ReleaseSilent) for action in decide(view, 104).actions)
    assert isinstance(decide(view, 105).actions[-1], ReleaseSilent)


def test_a_node_that_flaps_takes_no_pods_until_it_was_steady() -> None:
    settings = PlacementSettings(flapping=FlappingSettings(most=2, window_s=100))
    view = view_of(node("h1"))
    view.note_silence("h1", 10 * S)
    assert decide(view, 20, settings).actions == ()
    view.note_silence("h1", 20 * S)
    (held,) = decide(view, 20, settings).actions
    assert isinstance(held, SetNode)
    assert (held.node.spec.unschedulable, held.node.spec.reason) == (True, "it was silent 2 times within 100 s")
    view.take(replace(held.node, metadata=replace(held.node.metadata, revision=9)), 20 * S)
    view.take(
        replace(held.node, metadata=replace(held.node.metadata, revision=10), status=node("h1", heartbeat=5).status),
        90 * S,
    )
    assert decide(view, 119, settings).actions == ()
    (freed,) = decide(view, 120, settings).actions
    assert isinstance(freed, SetNode)
    assert (freed.node.spec.unschedulable, freed.node.metadata.labels) == (False, {})


def test_node_closed_by_a_user_stays_closed() -> None:
    settings = PlacementSettings(flapping=FlappingSettings(most=2, window_s=10))
    closed = replace(node("h1"), spec=NodeSpec(unschedulable=True, reason="broken fan"))
    view = view_of(closed)
    for at in (10, 11):
        view.note_silence("h1", at * S)
    assert decide(view, 12, settings).actions == ()


def test_shares_of_pods_that_are_gone_are_freed() -> None:
    here, gone = pod("a", "h1"), pod("b", "h1")
    holding = replace(node("h1"), shares=(share_of(here), share_of(gone)))
    assert decide(view_of(holding, here), 1).actions == (ReleaseShare("h1", "b"),)


def test_shares_newer_than_the_pod_watch_are_left_alone() -> None:
    bound = replace(node("h1", heartbeat=7), shares=(share_of(pod("a", "h1")),))
    view = view_of(bound, pod("a"))
    waiting = decide(view, 1)
    assert (waiting.actions, waiting.due_ns) == ((), 2 * S)
    view.note_revision(Pod, 7)
    assert decide(view, 1).actions == (ReleaseShare("h1", "a"),)


@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.RUNNING])
def test_pod_that_does_not_stop_is_reported(phase: Phase) -> None:
    stuck = pod("a", "h1", phase=phase)
    view = view_of(node("h1"), stuck if phase is Phase.STOPPING else deleting(stuck))
    assert decide(view, 39).stuck == ()
    view.take(node("h1", heartbeat=2), 39 * S)
    assert decide(view, 69).stuck == ()
    view.take(node("h1", heartbeat=3), 69 * S)
    what = "evicted" if phase is Phase.STOPPING else "deleted"
    assert decide(view, 70).stuck == (f"pod a is {what}, but node h1, which reports, has not stopped it for 70 s",)
