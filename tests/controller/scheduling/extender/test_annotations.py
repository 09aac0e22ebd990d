"""Pod settings by annotations."""

from __future__ import annotations

import msgspec
import pytest

from controller.common.errors import SchedulerError
from controller.scheduling.extender import objects
from controller.scheduling.extender.annotations import NOTHING, PeerNeed, PodAnnotations, annotations_of
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.extender.kube_objects import a_pod, written


def wishes(**annotations: str) -> PodAnnotations:
    named = {f"millrace.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    return annotations_of(msgspec.json.decode(written(a_pod("p", annotations=named)), type=objects.Pod))


def test_all_annotations_together() -> None:
    wished = wishes(
        profile="packed",
        group="trainer",
        device_kind="gpu",
        nodes="n1, n2",
        peers="""
            - {host: storage-1, min_bandwidth: 1 Gbit/s, max_delay: 50 us}
            - {pod: ps-0, bytes: 40 MiB}
            - {pod: other/ps-1}
            - {labels: {app: ps, tier: a}}
        """,
    )
    assert wished == PodAnnotations(
        peers=(
            PeerNeed(host="storage-1", namespace="default", min_bps=10**9, max_delay_ns=50_000),
            PeerNeed(pod="default/ps-0", namespace="default", nbytes=40 << 20),
            PeerNeed(pod="other/ps-1", namespace="default"),
            PeerNeed(labels=(("app", "ps"), ("tier", "a")), namespace="default"),
        ),
        nodes=("n1", "n2"),
        device_kind=DeviceKind.GPU,
        group="default/trainer",
        profile="packed",
    )


def test_json_is_accepted_and_other_annotations_ignored() -> None:
    assert wishes(peers='[{"host": "h1"}]').peers[0].host == "h1"
    pod = a_pod("p", annotations={"example.com/peers": "[", "kubernetes.io/x": ""})
    assert annotations_of(msgspec.json.decode(written(pod), type=objects.Pod)) is NOTHING


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({"peer": "h1"}, "millrace.io/peer: unknown; known: peers, nodes, device-kind, group, profile"),
        ({"peers": "[{host: h1, min_bandwith: 1 Gbit/s}]"}, "min_bandwith: unknown key"),
        ({"peers": "[{host: h1, pod: p1}]"}, "a peer is either a host, a pod or labels"),
        ({"peers": "[{}]"}, "a peer is either a host, a pod or labels"),
        ({"peers": "[{host: h1, min_bandwidth: 10}]"}, "min_bandwidth: expected `str | null`, got `int`"),
        ({"peers": "[{host: h1, max_delay: 5}]"}, "max_delay: expected"),
        ({"peers": "[{host: h1, max_delay: 5 parsec}]"}, "'5 parsec' is not a delay such as '5.7 ms'"),
        ({"peers": "[{host: h1"}, "millrace.io/peers: peers:1: "),
        ({"peers": "- {host: h}\n" * 300}, "300 peers; at most 256 are allowed"),
        ({"peers": "#" * 70_000}, "70000 characters; at most 65536"),
        ({"nodes": " , "}, "0 names; 1 to 256 are allowed"),
        ({"device-kind": "cgpu"}, "'cgpu' is not a valid DeviceKind"),
    ],
)
def test_invalid_annotation_names_pod_and_annotation(annotations: dict[str, str], problem: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        wishes(**annotations)
    assert str(caught.value).startswith("pod default/p: annotation millrace.io/")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_of_aliases_is_refused_soon() -> None:
    layers = "".join(f"&a{n} [{', '.join([f'*a{n - 1}'] * 9)}], " for n in range(1, 9))
    with pytest.raises(SchedulerError, match=r"annotation millrace\.io/peers: "):
        wishes(peers=f"[&a0 [x], {layers}]")
