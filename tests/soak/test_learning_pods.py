"""A few pods in a kernel fabric, placed by a scheduler that learns; tests.soak.learning_pods places more."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.controller.workloads.nodes.busybox_image import skip_without_containers

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from tests.soak.learning_pods import play

pytestmark = [pytest.mark.root, pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(1200)]


def test_pods_are_learned_in_shadow_and_placed_live(tmp_path: Path) -> None:
    skip_without_containers("podman", "runc", "conmon", "skopeo", "umoci")
    shadow, live, rule, again = play(tmp_path, pods=20, each=8, image_bytes=4_000_000)
    assert shadow.by["others"] == rule.by["others"] == again.by["others"] == 20
    assert 0 < shadow.last_version <= live.first_version
    assert live.by["network"] + live.by["exploration"] > 10
    assert live.training["decisions"] > 0
    assert live.last_version <= rule.first_version <= again.last_version
    assert max(part.failed for part in (shadow, live, rule, again)) <= 2
