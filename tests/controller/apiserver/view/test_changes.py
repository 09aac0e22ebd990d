"""Changes from the page: acknowledged events, rules, pins, pods; each by its right, and in the audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from collectors.collector import Collector
from collectors.events.rules import ChangeSettings, Rule
from controller.apiserver.view.changes.events import may_of
from controller.apiserver.view.changes.rules import condition_of, rule_of, text_of
from dataplane.rpc.access import Principal, Right, Role
from tests.controller.apiserver.api_server import Served
from tests.controller.apiserver.view.test_browsers import browser, play, signed_in
from tests.controller.apiserver.view.test_network import MS, frame_when, run

RULES = (
    Rule(name="full", figure="utilisation", above=0.9, clear=0.8, hold_ns=1500 * MS, match=("s1->*",)),
    Rule(name="new level", figure="delay_p50_ns", change=ChangeSettings(learn=30, adopt_after_ns=60_000 * MS)),
)
MANIFEST = """
pod:
  name: web
  image: docker.io/library/nginx:1
  cpu: 500m
"""


def audited(folder: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in (folder / "audit").read_text().splitlines()]


def test_rules_read_as_they_are_written() -> None:
    for rule in RULES:
        assert rule_of(text_of(rule)) == rule
    assert "hold: 1500ms" in text_of(RULES[0])
    assert "evidence" not in text_of(RULES[0])
    assert condition_of(RULES[0]) == "link: utilisation above 0.9 for 1500ms of s1->*"


def test_rights_say_what_a_caller_may_change() -> None:
    everything = ("acknowledge", "drain", "pin", "rules", "pods", "probes")
    assert may_of(Principal("root", Role.ADMIN)) == everything
    assert may_of(Principal("ada", Role.VIEWER)) == ()
    assert may_of(Principal("bob", Role.USER)) == ("pods", "probes")
    changing = may_of(Principal("bob", Role.USER, rights=(Right.CHANGE,)))
    assert changing == ("acknowledge", "drain", "pin", "pods", "probes")
    assert may_of(Principal("bob", Role.USER, rights=(Right.OPERATE,))) == everything


def test_events_rules_and_pins_are_changed_and_audited() -> None:
    async def act(served: Served, client: httpx.AsyncClient, collector: Collector) -> None:
        me = (await client.get("/v1/view/me")).json()
        assert {"acknowledge", "drain", "rules", "pin"} <= set(me["may"])
        await acknowledged(client)
        await changed_rules(client)
        await drained(client)
        await pinned(client)
        async with browser(served) as viewer:
            await signed_in(served, viewer, viewer=True)
            assert (await viewer.get("/v1/view/me")).json()["may"] == []
            await refused(viewer)
        lines = [line for line in audited(served.folder) if line["path"].startswith("/v1/view/")]
        done = {line["what"].partition(":")[0]: line["who"] for line in lines if line["status"] == 200}
        assert {
            "acknowledge slow on s1->s2",
            "withdraw the note on slow on s1->s2",
            "rule slow",
            "remove rule slow",
            "rule slow as in the settings",
            "pin h1 -> h2 to s1-s3-s2",
            "release h1 -> h2",
            "drain s1->s2",
            "put back s1->s2",
        } <= done.keys()
        assert set(done.values()) == {"local"}
        assert {line["role"] for line in lines if line["status"] == 403} == {"viewer"}

    run(act)


async def acknowledged(client: httpx.AsyncClient) -> None:
    told = await frame_when(client, 5, lambda events: any(event["link"] == 0 for event in events))
    (event,) = (event for event in told if event["link"] == 0)
    path = f"/v1/view/events/{event['id']}/note"
    noted = (await client.post(path, json={"text": "on it"})).json()
    assert (noted["note"]["by"], noted["note"]["text"]) == ("local", "on it")
    again = await frame_when(client, 5, lambda events: any(event["note"] for event in events))
    assert [event["note"] for event in again if event["link"] == 0] == [noted["note"]]
    assert (await client.delete(path)).json()["note"] is None
    gone = await client.post("/v1/view/events/0/note", json={})
    assert (gone.status_code, gone.json()["detail"]) == (404, "this event is no longer open")


async def changed_rules(client: httpx.AsyncClient) -> None:
    before = (await client.get("/v1/view/rules")).json()
    (rule,) = before["rules"]
    assert (rule["name"], rule["changed"]) == ("slow", None)
    wrong = await client.post("/v1/view/rules/check", json={"text": "name: x\nfigure: delay\nabove: 1\n"})
    assert wrong.status_code == 400
    assert "a link has no figure 'delay'" in wrong.json()["detail"]
    odd = await client.post("/v1/view/rules/check", json={"text": "name: x\n\nabov: 1\n"})
    assert odd.json()["detail"].startswith("rule:3: abov: unknown key; did you mean `above`?")
    text = rule["text"].replace("1000", "2000")
    asked = {"text": text, "replaces": "slow"}
    checked = (await client.post("/v1/view/rules/check", json=asked)).json()
    assert (checked["condition"], checked["now"]["count"] > 0) == ("link: delay mean ns above 2000", True)
    taken = await client.post("/v1/view/rules/check", json={"text": text})
    assert (taken.status_code, "a rule named slow exists" in taken.text) == (409, True)
    after = (await client.put("/v1/view/rules", json={**asked, "version": before["version"]})).json()
    (changed,) = after["rules"]
    assert (changed["changed"]["by"], changed["changed"]["settings"]) == ("local", rule["text"])
    late = await client.delete("/v1/view/rules", params={"name": "slow", "version": before["version"]})
    assert late.status_code == 409
    assert late.json()["detail"] == "somebody else has changed the rules meanwhile: read them again"
    left = (await client.delete("/v1/view/rules", params={"name": "slow", "version": after["version"]})).json()
    assert ([row["name"] for row in left["removed"]], left["rules"]) == (["slow"], [])
    restored = (await client.post("/v1/view/rules/restore", params={"name": "slow"})).json()
    assert (restored["rules"], restored["removed"]) == ([rule], [])


async def pinned(client: httpx.AsyncClient) -> None:
    flow = {"src": "h1", "dst": "h2"}
    way = ["s1", "s3", "s2"]
    assert (await client.post("/v1/view/pins", json={**flow, "path": way})).status_code == 200
    why = (await client.get("/v1/view/why", params=flow)).json()
    assert (why["path"], why["pinned"]) == (way, way)
    wrong = await client.post("/v1/view/pins", json={**flow, "path": ["s1", "s9", "s2"]})
    assert (wrong.status_code, "s9" in wrong.json()["detail"]) == (400, True)
    assert (await client.post("/v1/view/pins/release", json=flow)).status_code == 200
    again = await client.post("/v1/view/pins/release", json=flow)
    assert (again.status_code, again.json()["detail"]) == (404, "flow h1->h2 is not pinned")


async def drained(client: httpx.AsyncClient) -> None:
    asked = {"element": "s1->s2"}
    shown = (await client.get("/v1/view/drains/effect", params=asked)).json()
    assert ([move["new"] for move in shown["moves"]], shown["stays"]) == ([["s1", "s3", "s2"]], [])
    assert shown["moves"][0]["text"] == "h1 -> h2"
    assert (await client.get("/v1/view/drains")).json()["drains"] == []
    change = {**asked, "note": "new optics", "revision": shown["revision"]}
    done = (await client.post("/v1/view/drains", json=change)).json()
    assert (done["moves"], done["drain"]["by"], done["drain"]["note"]) == (shown["moves"], "local", "new optics")
    notes = await frame_when(client, 8, lambda notes: bool(notes["drained"]))
    assert [(each["link"], each["element"], each["reason"]) for each in notes["drained"]] == [
        (0, "s1->s2", "new optics")
    ]
    late = await client.post("/v1/view/drains", json={"element": "s3", "revision": shown["revision"]})
    assert (late.status_code, late.json()["detail"]) == (
        409,
        "the drains have changed since this was shown: look again",
    )
    wrong = await client.post("/v1/view/drains", json={"element": "s1->s9"})
    assert (wrong.status_code, "no switch 's1->s9'" in wrong.json()["detail"]) == (400, True)
    leaf = (await client.get("/v1/view/drains/effect", params={"element": "s2"})).json()
    assert (leaf["hosts"], leaf["stays"][0]["text"]) == (["h2"], "h1 -> h2")
    back = (await client.post("/v1/view/drains", json={**asked, "drained": False})).json()
    assert (back["drain"], back["is_change"]) == (None, True)
    await frame_when(client, 8, lambda notes: not notes["drained"])
    again = await client.post("/v1/view/drains", json={**asked, "drained": False})
    assert (again.status_code, again.json()["detail"]) == (404, "s1->s2 is not drained")


async def refused(viewer: httpx.AsyncClient) -> None:
    rule, flow = {"text": "name: x\nfigure: loss\nabove: 1\n"}, {"src": "h1", "dst": "h2"}
    for method, path, body in (
        ("POST", "/v1/view/events/0/note", {}),
        ("DELETE", "/v1/view/events/0/note", None),
        ("POST", "/v1/view/rules/check", rule),
        ("PUT", "/v1/view/rules", rule),
        ("DELETE", "/v1/view/rules?name=slow", None),
        ("POST", "/v1/view/rules/restore?name=slow", None),
        ("POST", "/v1/view/pins", {**flow, "path": ["s1", "s2"]}),
        ("POST", "/v1/view/pins/release", flow),
        ("POST", "/v1/view/drains", {"element": "s1"}),
        ("POST", "/v1/view/apply", {"text": MANIFEST}),
    ):
        answer = await viewer.request(method, path, json=body)
        assert answer.status_code == 403, (path, answer.text)
        assert "local (viewer)" in answer.json()["detail"], path


def test_manifest_is_planned_then_applied(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client:
            await signed_in(served, client)
            planned = (await client.post("/v1/view/apply", json={"text": MANIFEST, "dry": True})).json()
            assert planned["steps"] == [{"name": "pod web", "action": "create", "changes": []}]
            assert (await client.get("/v1/pods/web")).status_code == 404
            assert (await client.post("/v1/view/apply", json={"text": MANIFEST})).status_code == 200
            pod = (await client.get("/v1/pods/web")).json()
            assert pod["spec"]["request"]["cpu_milli"] == 500
            more = MANIFEST.replace("500m", "750m")
            (step,) = (await client.post("/v1/view/apply", json={"text": more})).json()["steps"]
            assert step["action"] == "change"
            late = await client.delete("/v1/pods/web", headers={"If-Match": str(pod["metadata"]["revision"])})
            assert late.status_code == 409
            wrong = await client.post("/v1/view/apply", json={"text": MANIFEST.replace("cpu", "cpus"), "dry": True})
            assert wrong.status_code == 400
            assert wrong.json()["detail"].startswith("manifest:5: ")
        lines = [(line["what"], line["who"]) for line in audited(tmp_path) if line["path"] == "/v1/view/apply"]
        assert lines[:3] == [
            ("plan: create pod web", "local"),
            ("create pod web", "local"),
            ("change pod web", "local"),
        ]

    play(tmp_path, act)
