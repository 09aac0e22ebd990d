"""Policies of other packages, by entry points."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from controller.cluster.hardware import Cluster
from controller.common.errors import SchedulerError
from controller.scheduling.framework.plugins import PODS, TASKS, known_policies
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import PendingPod, PodProfile, PodProfileSettings, Snapshot, decide
from tests.controller.scheduling.pods.clusters import node

MODULE = '''
import numpy as np
from dataplane.config import Strict

class Last:
    """Prefers the last node."""

    class Settings(Strict, frozen=True):
        points: int = 7

    def __init__(self, settings):
        self.settings = settings
        if settings.points == 13:
            raise ValueError("unlucky\\nnumber")

    def points(self, pod, snapshot, nodes):
        return np.where(nodes == len(snapshot.columns.nodes) - 1, self.settings.points, 0)

    def reason(self, pod, snapshot, node):
        return "it is the last"

class Bare:
    pass
'''
ENTRIES = """[millrace.policies.pods]
last = far_policies:Last
bare = far_policies:Bare
gone = far_policies:Gone
missing = no_such_module:Thing

[millrace.schedulers.policies]
old-last = far_policies:Last
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution with policies like pip: a module and its metadata on the path."""
    (tmp_path / "far_policies.py").write_text(MODULE)
    metadata = tmp_path / "far_policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: far-policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "far_policies", raising=False)


def profile(policy: str, **settings: object) -> PodProfile:
    return PodProfile.of(PodProfileSettings(scores=(PolicySettings(policy=policy, settings=settings),)))


def test_a_plugin_scores() -> None:
    snapshot = Snapshot.of(Cluster.of([node("a"), node("b"), node("c")]))
    choice = decide(profile("last", points=9), PendingPod("p"), snapshot)
    assert (choice.candidate, choice.points) == (2, 9)
    assert "last" in known_policies()


def test_old_group_of_entry_points_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        assert profile("old-last").scores
    (warning,) = (record.getMessage() for record in caplog.records)
    assert warning.startswith("policy old-last: the entry-point group millrace.schedulers.policies is now ")


def test_own_policies_are_entry_points() -> None:
    own = [
        entry_point
        for kind in (PODS, TASKS)
        for entry_point in entry_points(group=kind.group)
        if "controller" in entry_point.value
    ]
    assert {entry_point.name for entry_point in own} >= {"ready", "learned", "operator-devices", "finish-time"}
    for entry_point in own:
        assert isinstance(entry_point.load(), type)


@pytest.mark.parametrize(
    ("policy", "settings", "words"),
    [
        ("last", {"points": "many"}, "policy last: settings: Expected `int`, got `str` - at `$.points`"),
        ("last", {"points": 13}, "policy last: cannot be built: ValueError: unlucky number"),
        ("bare", {}, "policy bare: has no Settings"),
        ("gone", {}, "policy gone: far_policies:Gone does not load: AttributeError: "),
        ("missing", {}, "policy missing: no_such_module:Thing does not load: ModuleNotFoundError: "),
    ],
)
def test_a_broken_plugin_is_one_line(policy: str, settings: dict[str, object], words: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        profile(policy, **settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_plugins_of_one_name(tmp_path: Path) -> None:
    metadata = tmp_path / "other-2.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    (metadata / "entry_points.txt").write_text("[millrace.policies.pods]\nlast = other:Last\n")
    with pytest.raises(SchedulerError, match="policy last: registered by far_policies:Last and other:Last"):
        profile("last")
