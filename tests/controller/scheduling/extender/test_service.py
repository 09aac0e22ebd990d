"""Filter, prioritize, preempt, bind: with recorded kube-scheduler bodies and ones from the official models."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from kubernetes import client as k8s

from controller.common.errors import SchedulerError
from controller.scheduling.extender.messages import MalformedError
from controller.scheduling.extender.settings import DeviceResource, ExtenderLimits, ExtenderSettings, KubernetesSettings
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import PodProfileSettings
from dataplane.local.deadline import local_timeout
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.extender.api_double import kube_double
from tests.controller.scheduling.extender.extending import Extender, extending, failed, peers, victims
from tests.controller.scheduling.extender.kube_objects import a_node, a_pod, arguments, plain, read_as, recorded

AWAY = KubernetesSettings(server="http://127.0.0.1:1", ca=None, token_file=None)
"""An unused API server: tests provide the state."""


def test_full_nodes_are_filtered_and_returned_unchanged() -> None:
    body = recorded("filter-nodes")

    async def act(extender: Extender) -> None:
        answer = await extender.ask("filter", body)
        came = {node["metadata"]["name"]: node for node in json.loads(body)["Nodes"]["items"]}
        passed = {node["metadata"]["name"]: node for node in answer["Nodes"]["items"]}
        assert passed == {f"worker-{number}": came[f"worker-{number}"] for number in (1, 2, 3, 4)}
        assert answer["NodeNames"] is None
        assert answer["Error"] == ""
        # Checked by the API server's own types, as far as the official client has them.
        assert read_as(answer["Nodes"], "V1NodeList").items[0].status.allocatable["cpu"] == "8"
        assert answer["FailedNodes"] == {}  # the delay is the problem: evicting pods does not help
        why = answer["FailedAndUnresolvableNodes"]
        assert sorted(why) == ["worker-5", "worker-6", "worker-7", "worker-8"]
        assert re.fullmatch(
            r"network-need: h3: 10000\.0 Mbit/s are free and the delay is 0\.006 ms \(nominal\); "
            r"at most 0\.004 ms needed",
            why["worker-5"],
        )

    extending(act)


def test_a_kube_schedulers_nodes_are_scored() -> None:
    async def act(extender: Extender) -> None:
        answer = await extender.ask("prioritize", recorded("prioritize-nodes"))
        scores = {entry["Host"]: entry["Score"] for entry in answer}
        assert max(scores, key=lambda host: scores[host]) == "worker-3"  # the peer is on h3
        assert all(isinstance(score, int) and 0 <= score <= 10 for score in scores.values())
        decision = extender.service.recent.get("default/bodies")
        assert decision is not None
        assert "2 * 1000 by network-cost: h3: the same host" in decision.scores[0].reasons

    extending(act)


def test_a_kube_schedulers_names_need_a_watch() -> None:
    async def act(extender: Extender) -> None:
        answer = await extender.ask("filter", recorded("filter-names"))
        assert "the request has only the nodes' names" in answer["Error"]
        assert "nodeCacheCapable" in answer["Error"]
        with pytest.raises(SchedulerError, match="the request has only the nodes' names"):
            await extender.ask("prioritize", recorded("prioritize-names"))

    extending(act)


def test_a_kube_schedulers_names_are_looked_up() -> None:
    async def act(extender: Extender) -> None:
        extender.know(*(a_node(f"worker-{number}", f"h{number}", nvidia_com__gpu="4") for number in (2, 4, 6)))
        answer = await extender.ask("filter", recorded("filter-names"))
        assert answer["NodeNames"] == ["worker-4", "worker-6", "worker-2"]  # in order of arrival
        assert answer["Nodes"] is None
        assert failed(answer) == {"worker-8": "known: the node is not known yet"}
        scores = {
            entry["Host"]: entry["Score"] for entry in await extender.ask("prioritize", recorded("prioritize-names"))
        }
        assert scores["worker-8"] == 0
        assert min(scores["worker-2"], scores["worker-4"], scores["worker-6"]) > 5

    extending(act, kubernetes=AWAY)


@pytest.mark.parametrize("form", ["names", "nodes"])
def test_preemption_query_of_a_kube_scheduler(form: str) -> None:
    body = recorded(f"preempt-{form}")

    async def act(extender: Extender) -> None:
        args = json.loads(body)
        given = args["NodeNameToMetaVictims"] or args["NodeNameToVictims"]
        for node, some in given.items():
            extender.know(a_node(node, f"h{node[-1]}", nvidia_com__gpu="4"))
            for victim in some["Pods"]:
                uid = victim.get("UID") or victim["metadata"]["uid"]
                model = a_pod(f"low-{node}", node, nvidia_com__gpu="4")
                model.metadata.uid = uid
                extender.know(model)
        extender.know(a_pod("ps-0", "worker-6"))
        answer = await extender.ask("preempt", body)
        helped = answer["NodeNameToMetaVictims"]
        # The peer of the pod sent by names is on worker-6, at most 3 us away.
        assert sorted(helped) == (["worker-6"] if form == "names" else sorted(given))
        for node, some in helped.items():
            uids = [victim.get("UID") or victim["metadata"]["uid"] for victim in given[node]["Pods"]]
            assert some == {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": given[node]["NumPDBViolations"]}

    extending(act, kubernetes=AWAY)


def test_a_kube_schedulers_binding_is_made() -> None:
    with kube_double() as double:
        model = a_pod("low-0")
        model.metadata.uid = json.loads(recorded("bind"))["PodUID"]
        double.put(model)

        async def act(extender: Extender) -> None:
            assert await extender.ask("bind", recorded("bind")) == {"Error": ""}
            again = await extender.ask("bind", json.loads(recorded("bind")) | {"Node": "worker-2"})
            assert re.match(r"bind: http://127\.0\.0\.1:\d+: POST .*: 409: ", again["Error"])
            assert extender.count("bind", "failed") == 1

        extending(act, kubernetes=KubernetesSettings(server=double.url, ca=None, token_file=None))
        assert double.pod("low-0")["spec"]["nodeName"] == "worker-4"


def test_fields_are_read_in_any_case() -> None:
    """As written by kube-schedulers before 1.18."""
    body = json.loads(recorded("filter-nodes"))
    lower = {name.lower(): value for name, value in body.items()}

    async def act(extender: Extender) -> None:
        assert await extender.ask("filter", lower) == await extender.ask("filter", body)

    extending(act)


def test_held_resources_are_not_free_and_can_be_preempted() -> None:
    async def act(extender: Extender) -> None:
        extender.know(
            a_node("full", "h1", nvidia_com__gpu="2"), a_node("small", "h2", nvidia_com__gpu="1"), a_node("bare", "h3")
        )
        extender.know(a_pod("holder", "full", cpu="6", nvidia_com__gpu="1"), a_pod("ended", "full", phase="Succeeded"))
        asked = a_pod("p", cpu="1", nvidia_com__gpu="2")
        answer = await extender.ask("filter", arguments(asked, ["full", "small", "bare"]))
        assert answer["NodeNames"] == []
        assert answer["FailedNodes"] == {"full": "fits: gpu nvidia.com/gpu: 2 whole devices wanted, 1 free"}
        assert answer["FailedAndUnresolvableNodes"] == {
            "small": "device-model: it has 1 of 2 gpu nvidia.com/gpu",
            "bare": "device-model: it has 0 of 2 gpu nvidia.com/gpu",
        }
        body = {"Pod": plain(asked), "NodeNameToMetaVictims": victims(full=["uid-holder"], small=[], bare=["uid-x"])}
        helped = await extender.ask("preempt", body)
        assert helped["NodeNameToMetaVictims"] == {"full": {"Pods": [{"UID": "uid-holder"}], "NumPDBViolations": 1}}
        extender.books.remove_pod("uid-holder")
        assert (await extender.ask("filter", arguments(asked, ["full"])))["NodeNames"] == ["full"]

    extending(act, kubernetes=AWAY)


def test_repeated_watch_events_change_nothing_and_updates_count() -> None:
    async def act(extender: Extender) -> None:
        node, pod = a_node("n", "h1", nvidia_com__gpu="2", version="5"), a_pod("holder", "n", nvidia_com__gpu="1")
        wanted = arguments(a_pod("p", nvidia_com__gpu="2"), ["n"])
        extender.know(node, pod, node, pod)
        assert (await extender.ask("filter", wanted))["NodeNames"] == []
        extender.know(a_node("n", "h1", nvidia_com__gpu="3", version="6"))
        assert (await extender.ask("filter", wanted))["NodeNames"] == ["n"]
        extender.know(a_pod("late", "n", nvidia_com__gpu="1"))
        assert (await extender.ask("filter", wanted))["NodeNames"] == []
        extender.know(a_pod("late", "n", phase="Failed", nvidia_com__gpu="1"))
        assert (await extender.ask("filter", wanted))["NodeNames"] == ["n"]
        extender.know(a_pod("early", "comes"))  # its node arrives later
        extender.know(a_node("comes", "h2"))
        extender.books.remove_node("n")
        assert failed(await extender.ask("filter", wanted)) == {"n": "known: the node is not known yet"}
        assert sorted(extender.books.pods) == ["uid-early", "uid-holder"]

    extending(act, kubernetes=AWAY)


def test_overcommitted_devices_are_a_problem_reported_once() -> None:
    async def act(extender: Extender) -> None:
        extender.know(a_node("n", "h1", nvidia_com__gpu="1"))
        extender.know(a_pod("a", "n", nvidia_com__gpu="1"), a_pod("b", "n", nvidia_com__gpu="1"))
        answer = await extender.ask("filter", arguments(a_pod("p", nvidia_com__gpu="1"), ["n"]))
        assert answer["FailedNodes"] == {"n": "fits: gpu nvidia.com/gpu: 1 whole devices wanted, 0 free"}
        assert extender.books.new_problems() == ["pod default/b: node n has too few gpu nvidia.com/gpu left"]
        assert extender.books.new_problems() == []
        extender.books.remove_pod("uid-b")
        assert extender.books.problems == {}

    extending(act, kubernetes=AWAY)


def test_pod_problem_follows_the_pods_annotations() -> None:
    async def act(extender: Extender) -> None:
        wrong = {"millrace.io/peer": "h1"}
        extender.know(a_node("n", "h1"), a_pod("p", "n"))
        assert extender.books.problems == {}
        extender.know(a_pod("p", "n", annotations=wrong, labels={"app": "web"}))
        assert list(extender.books.problems) == ["default/p"]
        extender.know(a_pod("p", "n", labels={"app": "web"}))
        assert extender.books.problems == {}

    extending(act, kubernetes=AWAY)


def test_taints_that_are_not_tolerated() -> None:
    async def act(extender: Extender) -> None:
        nodes = [
            a_node("plain"),
            a_node("dedicated", taints=(("dedicated", "NoSchedule"),)),
            a_node("hint", taints=(("dedicated", "PreferNoSchedule"),)),
            a_node("cordoned", unschedulable=True),
        ]
        answer = await extender.ask("filter", arguments(a_pod("p"), nodes))
        assert [node["metadata"]["name"] for node in answer["Nodes"]["items"]] == ["plain", "hint"]
        assert answer["FailedAndUnresolvableNodes"] == {
            "dedicated": "taints: the pod does not tolerate dedicated:NoSchedule",
            "cordoned": "taints: the pod does not tolerate node.kubernetes.io/unschedulable:NoSchedule",
        }
        tolerant = a_pod("p", tolerations=[k8s.V1Toleration(operator="Exists")])
        assert len((await extender.ask("filter", arguments(tolerant, nodes)))["Nodes"]["items"]) == 4
        exact = a_pod("p", tolerations=[k8s.V1Toleration(key="dedicated", value="", effect="NoSchedule")])
        assert len((await extender.ask("filter", arguments(exact, nodes)))["Nodes"]["items"]) == 3

    extending(act)


def test_peer_pods_count_on_their_nodes() -> None:
    async def act(extender: Extender) -> None:
        nodes = {f"n{number}": a_node(f"n{number}", f"h{number}") for number in (1, 2, 3, 9)}
        extender.know(*nodes.values())
        for asked in (
            a_pod("p", annotations=peers({"pod": "ps-0", "bytes": "1 GiB"})),
            a_pod("p", annotations=peers({"labels": {"app": "ps"}, "bytes": "1 GiB"})),
        ):
            before = await extender.ask("prioritize", arguments(asked, list(nodes)))
            assert len({entry["Score"] for entry in before}) == 1  # the peer is not placed yet
            extender.know(a_pod("ps-0", "n9", labels={"app": "ps"}))
            after = {
                entry["Host"]: entry["Score"]
                for entry in await extender.ask("prioritize", arguments(asked, list(nodes)))
            }
            assert after["n9"] > after["n1"]
            extender.books.remove_pod("uid-ps-0")

    extending(act, kubernetes=AWAY)


def test_bandwidth_of_bound_pods_is_reserved_and_preemptible() -> None:
    async def act(extender: Extender) -> None:
        extender.know(*(a_node(f"n{number}", f"h{number}") for number in (1, 3, 5)))
        holder = a_pod("holder", "n3", annotations=peers({"host": "h1", "min_bandwidth": "6 Gbit/s"}))
        extender.know(holder)
        asked = a_pod("p", annotations=peers({"host": "h1", "min_bandwidth": "6 Gbit/s"}))
        answer = await extender.ask("filter", arguments(asked, ["n1", "n3", "n5"]))
        assert answer["NodeNames"] == ["n1"]  # the peer's own host
        assert answer["FailedAndUnresolvableNodes"] == {}  # enough without the other pod
        assert answer["FailedNodes"]["n5"].startswith("network-need: h1: 4000.0 Mbit/s are free")
        assert "less reservations of bound pods" in answer["FailedNodes"]["n5"]
        given = victims(n3=["uid-holder"], n5=["uid-x"])
        helped = await extender.ask("preempt", {"Pod": plain(asked), "NodeNameToMetaVictims": given})
        assert list(helped["NodeNameToMetaVictims"]) == ["n3"]
        extender.books.remove_pod("uid-holder")
        assert (await extender.ask("filter", arguments(asked, ["n5"])))["NodeNames"] == ["n5"]

    extending(act, kubernetes=AWAY)


def test_pod_named_by_a_bound_pod_is_kept_near_it() -> None:
    async def act(extender: Extender) -> None:
        extender.know(*(a_node(f"n{number}", f"h{number}") for number in (1, 2, 16)))
        extender.know(a_pod("worker", "n1", annotations=peers({"pod": "ps", "max_delay": "3 us"})))
        answer = await extender.ask("filter", arguments(a_pod("ps"), ["n1", "n2", "n16"]))
        assert answer["NodeNames"] == ["n1", "n2"]

    extending(act, kubernetes=AWAY)


def test_a_pod_waits_for_a_peer_that_is_being_bound() -> None:
    """A kube-scheduler asks about the next pod while it binds the previous one, whose node is not known yet."""
    with kube_double() as double:
        double.put(a_pod("ps-0"))

        async def act(extender: Extender) -> None:
            nodes = [a_node(f"n{number}", f"h{number}") for number in (1, 9)]
            extender.know(*nodes)
            names = ["n1", "n9"]
            await extender.ask("filter", arguments(a_pod("ps-0"), names))
            near = a_pod("worker-0", annotations=peers({"pod": "ps-0", "max_delay": "1 us"}))
            asked = asyncio.create_task(extender.ask("filter", arguments(near, names)))
            await asyncio.sleep(0)
            bound = {"PodName": "ps-0", "PodNamespace": "default", "PodUID": "uid-ps-0", "Node": "n9"}
            assert await extender.ask("bind", bound) == {"Error": ""}
            assert (await asked)["NodeNames"] == ["n9"]

        extending(
            act,
            ExtenderSettings(host_label="millrace.io/host", limits=ExtenderLimits(settle_s=30)),
            kubernetes=KubernetesSettings(server=double.url, ca=None, token_file=None),
        )


def test_pod_waits_neither_forever_nor_for_unrelated_pods() -> None:
    async def act(extender: Extender) -> None:
        extender.know(a_node("n1", "h1"))
        await extender.ask("filter", arguments(a_pod("other"), ["n1"]))
        async with local_timeout(20, "a test"):
            await extender.ask("filter", arguments(a_pod("p", annotations=peers({"pod": "ps-0"})), ["n1"]))
            await extender.ask("filter", arguments(a_pod("ps-0"), ["n1"]))
            extender.service._settings = ExtenderSettings(limits=ExtenderLimits(settle_s=0.01))
            await extender.ask("filter", arguments(a_pod("q", annotations=peers({"pod": "ps-0"})), ["n1"]))

    extending(act, ExtenderSettings(limits=ExtenderLimits(settle_s=60)), kubernetes=AWAY)


def test_profiles_groups_and_devices_by_settings() -> None:
    settings = ExtenderSettings(
        host_label="millrace.io/host",
        profiles=(
            PodProfileSettings(name="spread", scores=(PolicySettings(policy="spread"),)),
            PodProfileSettings(name="packed", scores=(PolicySettings(policy="most-used"),)),
        ),
        devices=(DeviceResource(resource="example.com/dpu", kind=DeviceKind.DPU),),
        stretch=True,
    )

    async def act(extender: Extender) -> None:
        extender.know(a_node("n1", "h1", example_com__dpu="1"), a_node("n2", "h2"))
        extender.know(a_pod("a", "n1", annotations={"millrace.io/group": "g"}, cpu="4"))
        for profile, scores in (("", {"n1": 0, "n2": 10}), ("packed", {"n1": 10, "n2": 0})):
            annotations = {"millrace.io/group": "g"} | ({"millrace.io/profile": profile} if profile else {})
            asked = a_pod("p", annotations=annotations, cpu="1")
            ranking = await extender.ask("prioritize", arguments(asked, ["n1", "n2"]))
            assert {entry["Host"]: entry["Score"] for entry in ranking} == scores
        placed = a_pod("p", annotations={"millrace.io/device-kind": "dpu"})
        answer = await extender.ask("filter", arguments(placed, ["n1", "n2"]))
        assert (answer["NodeNames"], failed(answer)) == (["n1"], {"n2": "location: it has no dpu"})
        placed = a_pod("p", annotations={"millrace.io/nodes": "n2"})
        assert (await extender.ask("filter", arguments(placed, ["n1", "n2"])))["NodeNames"] == ["n2"]
        none = await extender.ask("filter", arguments(a_pod("p", annotations={"millrace.io/profile": "x"}), ["n1"]))
        assert none["Error"] == "pod default/p: unknown profile 'x'; known: spread, packed"
        assert none["NodeNames"] is None

    extending(act, settings, kubernetes=AWAY)


def test_many_refusals_keep_their_reasons_for_the_first_only() -> None:
    async def act(extender: Extender) -> None:
        names = [f"n{number}" for number in range(8)]
        extender.know(*(a_node(name) for name in names))
        answer = await extender.ask("filter", arguments(a_pod("p", cpu="9"), names))
        reasons = list(failed(answer).values())
        assert reasons[:3] == ["fits: cpu: 9000 thousandths of cores wanted, 8000 free"] * 3
        assert reasons[3:] == ["fits: refused"] * 5
        decision = extender.service.recent.get("default/p")
        assert decision is not None
        assert (decision.refused_by, len(decision.refused)) == ({"fits": 8}, 3)

    extending(act, ExtenderSettings(explained_nodes=3), kubernetes=AWAY)


def test_decisions_that_are_kept_make_room() -> None:
    async def act(extender: Extender) -> None:
        for number in range(5):
            await extender.ask("filter", arguments(a_pod(f"p{number}"), [a_node("n1")]))
        kept = [number for number in range(5) if extender.service.recent.get(f"default/p{number}") is not None]
        assert kept == [3, 4]

    extending(act, ExtenderSettings(kept_decisions=2))


def test_too_many_nodes_and_failing_policies_are_errors() -> None:
    async def act(extender: Extender) -> None:
        answer = await extender.ask("filter", arguments(a_pod("p"), ["a", "b", "c"]))
        assert answer["Error"] == "3 nodes; at most 2 are allowed"
        bind = {"PodName": "p", "PodNamespace": "default", "PodUID": "", "Node": "n"}
        extender.service._api = None
        assert "omit bindVerb" in (await extender.ask("bind", bind))["Error"]

    extending(act, ExtenderSettings(limits=ExtenderLimits(nodes=2)), kubernetes=AWAY)


@pytest.mark.parametrize(
    ("verb", "body", "problem"),
    [
        ("filter", b"", "the body: Input data was truncated"),
        ("filter", b"[]", "the body: Expected `object`, got `array`"),
        ("filter", b"{}", "the request has no Pod"),
        ("filter", b'{"Pod": {}}', "the request's Pod has no name"),
        ("filter", b'{"Pod": {"metadata": {"name": "p"}}}', "the request has neither Nodes nor NodeNames"),
        ("filter", b'{"Pod": {"metadata": {"name": 5}}}', "Pod: Expected `str`, got `int` - at `$.metadata.name`"),
        ("filter", b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": [1]}', "NodeNames: Expected `str`, got `int`"),
        ("filter", b'{"Pod": {"metadata": {"name": "p"}}, "Nodes": {"items": [{}]}}', "Nodes.items[0] has no name"),
        ("filter", b"\xff", "the body: JSON is malformed"),
        ("filter", b'{"Pod":' + b"[" * 100_000, "the body: "),
        ("preempt", b'{"Pod": {"metadata": {"name": "p"}}, "NodeNameToVictims": []}', "NodeNameToVictims: Expected"),
        ("bind", b'{"PodName": "p", "PodNamespace": "d"}', "the request has no Node"),
    ],
)
def test_bodies_that_cannot_be(verb: str, body: bytes, problem: str) -> None:
    async def act(extender: Extender) -> None:
        with pytest.raises(MalformedError) as caught:
            await extender.ask(verb, body)
        assert str(caught.value).startswith(problem)
        assert "\n" not in str(caught.value)

    extending(act)


def test_without_a_network_needs_are_refused_everywhere() -> None:
    async def act(extender: Extender) -> None:
        asked = a_pod("p", annotations=peers({"host": "h1", "min_bandwidth": "1 Mbit/s"}))
        answer = await extender.ask("filter", arguments(asked, [a_node("n1", "h1")]))
        assert failed(answer) == {"n1": "network-need: the network is unknown"}

    extending(act, costs=None)
