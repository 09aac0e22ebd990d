"""A computed view of a fabric: an instrument that drives the page into states a fabric rarely reaches.

Figures follow sines of the time, so that any moment can be replayed.
"""

from __future__ import annotations

import json
import math
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from collectors.events.changes import RuleChange, RuleState
from collectors.events.standard import STANDARD_RULES
from controller.apiserver.view.changes.rules import rules_answer
from dataplane.topology.file import load_topology

DOWN, NO_TELEMETRY = 254, 255


def abilene() -> dict[str, Any]:
    """Return Abilene as the page gets it."""
    topology = load_topology("abilene")
    names = [switch.name for switch in topology.switches]
    places = [(node.place.longitude, node.place.latitude) for node in topology.switches if node.place is not None]
    # Two routers of Atlanta have one place.
    spots = [(x + 0.9 * names[i].endswith("m5"), -y + 0.9 * names[i].endswith("m5")) for i, (x, y) in enumerate(places)]
    index = {name: i for i, name in enumerate(names)}
    hosts: list[dict[str, Any]] = []
    access: list[dict[str, int]] = []
    for host in topology.hosts:
        link = next(link for link in topology.links if host.name in (link.a.node, link.b.node))
        switch = index[link.b.node if link.a.node == host.name else link.a.node]
        angle = 2.4 * len(hosts)
        x, y = spots[switch]
        hosts.append(
            {"name": host.name, "switch": switch, "x": x + 0.9 * math.cos(angle), "y": y + 0.9 * math.sin(angle)}
        )
        access.append(
            {"a": switch, "b": len(names) + len(hosts) - 1, "rate_bps": link.rate_bps, "delay_ns": link.delay_ns}
        )
    cables = [
        {"a": index[link.a.node], "b": index[link.b.node], "rate_bps": link.rate_bps, "delay_ns": link.delay_ns}
        for link in topology.links
        if link.a.node in index and link.b.node in index
    ]
    switches = [
        {"name": name, "x": x, "y": y, "layer": None, "place": place}
        for name, (x, y), place in zip(names, spots, places, strict=True)
    ]
    return {
        "name": "abilene",
        "hash": "a1",
        "layout": "place",
        "switches": switches,
        "hosts": hosts,
        "cables": cables + access,
        "bounds": _bounds(switches),
    }


def clos(leaves: int = 900, spines: int = 100, uplinks: int = 11) -> dict[str, Any]:
    """Return a Clos of 1,000 switches and 9,900 cables, in pods that share groups of spines."""
    switches = [
        {"name": f"leaf{i}", "x": i / leaves * 100, "y": 40.0, "layer": 0, "place": None} for i in range(leaves)
    ]
    switches += [
        {"name": f"spine{i}", "x": (i + 0.5) / spines * 100, "y": 0.0, "layer": 1, "place": None} for i in range(spines)
    ]
    cables = [
        {"a": leaf, "b": leaves + (leaf // 45 * 5 + k) % spines, "rate_bps": 100_000_000_000, "delay_ns": 500}
        for leaf in range(leaves)
        for k in range(uplinks)
    ]
    return {
        "name": "clos-1000",
        "hash": "c1",
        "layout": "layers",
        "switches": switches,
        "hosts": [],
        "cables": cables,
        "bounds": _bounds(switches),
    }


def bundle(cables: int, name: str) -> dict[str, Any]:
    """Return two switches without places, whose names begin with `name`, and as many cables between them."""
    switches = [
        {"name": name + end, "x": x, "y": 0.0, "layer": 0, "place": None} for end, x in (("a", 0.0), ("b", 100.0))
    ]
    ends = {"a": 0, "b": 1, "rate_bps": 100_000_000_000, "delay_ns": 500}
    return {
        "name": "bundle",
        "hash": "b1",
        "layout": "layers",
        "switches": switches,
        "hosts": [],
        "cables": [dict(ends) for _ in range(cables)],
        "bounds": _bounds(switches),
    }


def _bounds(nodes: list[dict[str, Any]]) -> list[float]:
    xs, ys = [node["x"] for node in nodes], [node["y"] for node in nodes]
    return [min(xs), min(ys), max(xs), max(ys)]


@dataclass
class ComputedView:
    """A fabric whose figures are functions of the time; tests change its fields while it is served."""

    topology: dict[str, Any]
    down: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    lossy: set[int] = field(default_factory=set)
    drained: set[int] = field(default_factory=set)
    elements: dict[str, str] = field(default_factory=dict)
    """Elements that a user has drained, with their notes."""
    may: list[str] = field(default_factory=list)
    """Changes that the one who is signed in may make."""
    problem: str | None = None
    """A problem of the collector: no columns are sent while there is one."""
    is_away: bool = False
    """Answer nothing, and end streams."""
    build: str = ""
    tokens: set[str] = field(default_factory=lambda: {"viewer-token"})
    codes: set[str] = field(default_factory=lambda: {"once"})
    sessions: set[str] = field(default_factory=set)
    started_ns: int = field(default_factory=time.time_ns)
    ahead_ns: int = 0
    """By how much the server's clock is ahead of the machine's."""

    def __post_init__(self) -> None:
        n = len(self.topology["switches"])
        self.cables = [cable for cable in self.topology["cables"] if cable["a"] < n and cable["b"] < n]
        self.links = 2 * len(self.cables)
        names = [node["name"] for node in self.topology["switches"]]
        self.ends = [(names[cable[x]], names[cable[y]]) for cable in self.cables for x, y in (("a", "b"), ("b", "a"))]
        self._neighbours: dict[str, list[str]] = {}
        for a, b in self.ends:
            self._neighbours.setdefault(a, []).append(b)

    def planes(self, now_ns: int) -> npt.NDArray[np.uint8]:
        """Return the planes of a time: utilisation, delay, loss."""
        link = np.arange(self.links)
        phase = now_ns / 1e9 / (20 + link % 37) + link * 0.7
        share = np.clip(0.38 + 0.3 * np.sin(phase) + 0.22 * np.sin(link * 1.3), 0.01, 1)
        used = np.round(share * 250).astype(np.uint8)
        excess_us = 20 * share**6 * 1000 + 2
        delay = np.clip(1 + np.round(8 * np.log2(excess_us)), 0, 254).astype(np.uint8)
        loss = np.zeros(self.links, np.uint8)
        loss[sorted(self.lossy)] = 180
        for links, code in ((self.silent, NO_TELEMETRY), (self.down, DOWN)):
            used[sorted(links)] = code
            delay[sorted(links)] = 255
            loss[sorted(links)] = 255
        return np.concatenate([used, delay, loss])

    def events(self) -> list[dict[str, Any]]:
        """Return open and closed events: one per link that is down or loses, and one that closed."""
        events = [
            self._event(
                link,
                "critical" if link in self.down else "warning",
                "link down" if link in self.down else "loss above 0.1 %",
            )
            for link in sorted(self.down | self.lossy)
        ]
        closed = self._event(0, "warning", "delay above 10 ms")
        closed |= {
            "id": "closed",
            "opened_ns": self.started_ns - 900_000_000_000,
            "closed_ns": self.started_ns - 600_000_000_000,
        }
        return [*events, closed]

    def _event(self, link: int, severity: str, text: str) -> dict[str, Any]:
        a, b = self.ends[link]
        return {
            "id": f"{text} {link}",
            "rule": text.split(" ", 1)[0],
            "severity": severity,
            "subject": f"link {a}->{b}",
            "link": link,
            "opened_ns": self.started_ns - 120_000_000_000,
            "closed_ns": None,
            "text": f"{a}->{b}: {text}",
            "note": None,
        }

    def flows(self) -> list[dict[str, Any]]:
        """Return flows between hosts, or between switches of a fabric without hosts."""
        hosts = self.topology["hosts"] or [
            {"name": node["name"], "switch": i} for i, node in enumerate(self.topology["switches"][:40])
        ]
        names = [node["name"] for node in self.topology["switches"]]
        flows = []
        for i, src in enumerate(hosts):
            for k in (1, 3, 7):
                dst = hosts[(i + k) % len(hosts)]
                path = self.path(names[src["switch"]], names[dst["switch"]])
                port = 5000 + k
                flows.append(
                    {
                        "src": src["name"],
                        "dst": dst["name"],
                        "protocol": 17,
                        "src_port": port,
                        "dst_port": 4791,
                        "text": f"{src['name']}:{port} -> {dst['name']}:4791 UDP",
                        "path": path,
                        "rate_bps": int(2e9 / (1 + i * k % 23)),
                        "delay_ns": 3_000_000 * max(1, len(path) - 1),
                        "loss": 0.0,
                    }
                )
        return sorted(flows, key=lambda flow: -flow["rate_bps"])

    def path(self, src: str, dst: str, avoid: frozenset[str] = frozenset()) -> list[str]:
        """Return a path of fewest hops, or none."""
        before: dict[str, str] = {src: ""}
        queue = [src]
        for node in queue:
            if node == dst:
                path = [dst]
                while before[path[-1]]:
                    path.append(before[path[-1]])
                return path[::-1]
            for neighbour in self._neighbours.get(node, []):
                if neighbour not in before and (neighbour == dst or neighbour not in avoid):
                    before[neighbour] = node
                    queue.append(neighbour)
        return []

    def moves(self) -> list[dict[str, Any]]:
        """Return moves: of the longest flows, around their second switch."""
        moves = []
        for i, flow in enumerate([flow for flow in self.flows() if len(flow["path"]) > 3][:4]):
            old = flow["path"]
            new = self.path(old[0], old[-1], frozenset(old[1:2]))
            if new:
                key = {name: flow[name] for name in ("src", "dst", "protocol", "src_port", "dst_port")}
                moves.append(
                    {
                        "id": f"m{i}",
                        "at_ns": self.started_ns - (40 + 70 * i) * 1_000_000_000,
                        "flow": key,
                        "text": flow["text"],
                        "old": old,
                        "new": new,
                        "reason": f"{old[0]}->{old[1]} is at 93 %: the new path is 4.1 ms faster with this flow on it",
                        "gain_ns": 4_100_000,
                    }
                )
        return moves

    def jobs(self, now_ns: int) -> list[dict[str, Any]]:
        """Return a job of the first eight hosts that waits for the third, one that gathers, and one that has ended."""
        hosts = [host["name"] for host in self.topology["hosts"][:8]]
        names = [node["name"] for node in self.topology["switches"]]
        edges = [names[host["switch"]] for host in self.topology["hosts"][:8]]
        root = edges[0] if edges else names[0]
        paths = [self.path(edge, root) for edge in edges]
        links = sorted({pair for path in paths for pair in pairwise(path)})
        figures = {
            "items": 52_340,
            "items_per_s": 1270.0,
            "reported": 3271,
            "repeated": 41,
            "repeated_per_item": 0.0125,
            "wait_mean_ns": 812_000,
            "wait_p50_ns": 640_000,
            "wait_p99_ns": 2_900_000,
            "wait_max_ns": 9_100_000,
            "cells_used": 61,
            "cells": 128,
            "age_ns": 14_000_000,
        }
        waits = {"last": 2600, "last_share": 0.81, "wait_mean_ns": 940_000, "wait_max_ns": 9_100_000}
        waits["wait_caused_ns"] = 760_000
        members = [
            {
                "host": host,
                "state": "working",
                "heard_ns": now_ns - 400_000_000,
                "switch": root,
                **(waits if number == 2 else dict.fromkeys(waits)),
            }
            for number, host in enumerate(hosts)
        ]
        slowest = {"name": hosts[2], "switch": root, **waits} if len(hosts) > 2 else None
        job = {
            "id": "4 resnet",
            "name": "resnet",
            "number": 4,
            "state": "running",
            "epoch": 3,
            "workers": len(hosts),
            "window": 64,
            "capacity": 8,
            "reason": "",
            "ended_ns": None,
            "root": root,
            "switches": [root],
            "links": links,
            **figures,
            "slowest": slowest,
            "members": members,
            "at": [{"switch": root, "is_leaf": False, **figures}],
        }
        empty: dict[str, Any] = {
            **dict.fromkeys(figures),
            "slowest": None,
            "at": [],
            "links": [],
            "root": None,
            "switches": [],
        }
        gathering = {**job, **empty, "id": "None <b>vgg</b>", "name": "<b>vgg</b>", "number": None, "epoch": None}
        gathering |= {"state": "gathering", "members": [{**members[0], "state": "waiting"}] if members else []}
        ended = {**job, **empty, "id": "2 bert", "name": "bert", "number": 2, "state": "ended", "members": []}
        ended |= {"reason": "all workers have left", "ended_ns": now_ns - 90_000_000_000}
        return [job, gathering, ended]

    def _system(self) -> dict[str, Any]:
        """Return sessions, reporters, clocks and drops."""
        names = [node["name"] for node in self.topology["switches"]]
        clock = {"group": names[0], "offset_ns": 1_200, "drift_ppb": -30, "uncertainty_ns": 900}
        drop = {"switch": names[0], "ingress_port": 1, "egress_port": 2, "reason": "queue_full", "packets": 7}
        return {
            "controller": {
                "switches": len(names),
                "live": names[1:],
                "problems": [{"switch": names[0], "problem": "no answer within 10 s"}],
                "pending_entries": 3,
                "settled": False,
                "writes": 4_711,
            },
            "reporters": [{"switch": name, "received": 1_000, "lost": 2} for name in names],
            "clocks": [{"switch": name, **clock} for name in names],
            "drops": [{**drop, "last_ns": time.time_ns()}],
            "why_no_drops": None,
            "why_no_audit": None,
        }

    def _costs(self) -> dict[str, Any]:
        """Return a cost map of the first hosts."""
        hosts = [host["name"] for host in self.topology["hosts"][:12]]
        rows = [
            [None if i == j else (1_000_000 * (1 + (i + j) % 5), 10**9, 0.0, i % 2 == 0) for j in range(len(hosts))]
            for i in range(len(hosts))
        ]
        return {"hosts": hosts, "of": len(self.topology["hosts"]), "rows": rows}

    def answer(self, path: str, query: Mapping[str, str]) -> tuple[int, Any]:
        """Answer a question of the page: a status and a body."""
        now_ns = time.time_ns()
        if path.startswith("/v1/view/links/"):
            a, b = (unquote(part) for part in path.removeprefix("/v1/view/links/").split("/", 1))
            if (a, b) not in self.ends:
                return 404, {"detail": f"no link {a}->{b}"}
            return 200, self._link(self.ends.index((a, b)), int(query.get("at", now_ns)))
        if path == "/v1/view/drains/effect":
            return self._drain_effect(query["element"], query["drained"] == "true")
        if path == "/v1/view/flows":
            flows = self.flows()
            return 200, {"flows": flows[: int(query["limit"])], "of": len(flows) + 4213}
        if path == "/v1/view/why":
            return self._why(query)
        if path == "/v1/view/rules":
            lower = replace(STANDARD_RULES[0], above=0.7, clear=0.6)
            change = RuleChange(lower.name, lower, STANDARD_RULES[0], "ada", now_ns)
            return 200, rules_answer(RuleState((lower, *STANDARD_RULES[1:]), (change,)))
        if path == "/v1/view/jobs":
            return 200, {"at_ns": now_ns, "jobs": self.jobs(now_ns)}
        if path == "/v1/view/system":
            return 200, self._system()
        if path == "/v1/view/costs":
            return 200, self._costs()
        if path == "/v1/view/audit":
            who = {"who": "ada", "role": "user", "method": "POST", "path": "/v1/pods", "status": 201}
            return 200, {"records": [{**who, "time_ns": now_ns - 60_000_000_000, "what": ""}]}
        kind = path.removeprefix("/v1/")
        if kind in ("nodes", "pods", "tasks", "decisions", "centres"):
            return 200, {"items": _resources(kind, now_ns), "revision": 7}
        return 404, {"detail": f"nothing at {path}"}

    @property
    def revision(self) -> str:
        """The revision of what is drained."""
        return ",".join(sorted(self.elements)) or "none"

    def change_drain(self, asked: Mapping[str, Any]) -> tuple[int, Any]:
        """Drain an element or put it back, as the API server does."""
        if asked.get("revision", self.revision) != self.revision:
            return 409, {"detail": "the drains have changed since this was shown: look again"}
        status, effect = self._drain_effect(asked["element"], asked["drained"])
        if status == 200 and asked["drained"]:
            self.elements[asked["element"]] = asked["note"]
        elif status == 200:
            del self.elements[asked["element"]]
        return status, effect

    def _links_of(self, element: str) -> list[int]:
        both = element.split("<->")
        pairs = [tuple(both), tuple(both[::-1])] if len(both) == 2 else [tuple(element.split("->"))]
        return [i for i, ends in enumerate(self.ends) if ends in pairs or element in ends]

    def _drain_effect(self, element: str, is_drained: bool) -> tuple[int, Any]:
        if not is_drained and element not in self.elements:
            return 404, {"detail": f"{element} is not drained"}
        links = {self.ends[link] for link in self._links_of(element)}
        crossing = [flow for flow in self.flows() if links & set(pairwise(flow["path"]))]
        moves, stays = [], []
        for flow in crossing:
            new = self.path(flow["path"][0], flow["path"][-1], frozenset({element, *next(iter(links))}))
            if new and not links & set(pairwise(new)):
                old, to = (flow["path"], new) if is_drained else (new, flow["path"])
                moves.append({"text": flow["text"], "old": old, "new": to, "reason": ""})
            else:
                stays.append({"text": flow["text"], "path": flow["path"], "reason": "no other path may be used"})
        drain = {"element": element, "since_ns": time.time_ns(), "by": "ada", "note": ""}
        return 200, {
            "drain": drain if is_drained else None,
            "is_change": is_drained != (element in self.elements),
            "moves": moves,
            "moves_of": len(moves),
            "stays": stays,
            "stays_of": len(stays),
            "others": 7,
            "hosts": [host["name"] for host in self.topology["hosts"] if self.switch_of(host) == element],
            "before": {"link": "snva->losa", "share": 0.61},
            "after": {"link": "hstn->kscy", "share": 0.74},
            "revision": self.revision,
        }

    def switch_of(self, host: Mapping[str, Any]) -> str:
        """Return the name of a host's switch."""
        return str(self.topology["switches"][host["switch"]]["name"])

    def _link(self, link: int, at_ns: int) -> dict[str, Any]:
        times = [at_ns - 5_000_000_000 * i for i in range(120)][::-1]
        used = [int(self.planes(t)[link]) for t in times]
        a, b = self.ends[link]
        shares = [value / 250 if value <= 250 else None for value in used]
        return {
            "link": {"a": a, "b": b},
            "at_ns": at_ns,
            "figures": [
                {"name": "utilisation", "value": shares[-1], "unit": "share", "text": "utilisation"},
                {"name": "queue", "value": 12, "unit": "frames", "text": "queue, mean"},
                {"name": "jitter", "value": 48_000, "unit": "ns", "text": "jitter"},
            ],
            "status": {"condition": "down" if link in self.down else "up", "cause": "", "age_ns": 90_000_000_000},
            "flows": [
                {**flow, "managed": True}
                for flow in self.flows()
                if (a, b) in zip(flow["path"], flow["path"][1:], strict=False)
            ][:20],
            "flows_of": 31,
            "series": {
                "at_ns": times,
                "utilisation": shares,
                "delay_ns": [None if s is None else 5e6 + 2e7 * s**6 for s in shares],
                "loss": [0.0] * 120,
            },
            "why_no_series": None,
        }

    def _why(self, query: Mapping[str, str]) -> tuple[int, Any]:
        flow = next(
            (flow for flow in self.flows() if flow["src"] == query["src"] and flow["dst"] == query["dst"]), None
        )
        if flow is None:
            return 404, {"detail": f"no flow from {query['src']} to {query['dst']}"}
        move = next((move for move in self.moves() if move["text"] == flow["text"]), None)
        path = flow["path"] if move is None else move["new"]
        other = self.path(path[0], path[-1], frozenset(path[1:-1])) or path
        alternatives = [
            {
                "path": path,
                "delay_ns": 12_000_000,
                "delay_after_ns": None,
                "bottleneck_bps": 5e9,
                "margin": None,
                "verdict": "in use",
            },
            {
                "path": other,
                "delay_ns": 16_100_000,
                "delay_after_ns": 17_000_000,
                "bottleneck_bps": 7e9,
                "margin": -0.34,
                "verdict": "slower by 4.1 ms",
            },
        ]
        words = [
            f"{flow['text']} takes {' '.join(path)}.",
            "It was moved because the path before was at 93 %."
            if move
            else "No other path is faster by the margin of 10 %.",
        ]
        return 200, {"flow": flow, "path": path, "words": words, "alternatives": alternatives, "decision": move}

    def frames(
        self, is_live: bool, from_ns: int, to_ns: int, speed: float, stop: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yield the frames of a stream, one state a second of the time that it shows."""
        hello = {"version": 1, "build": self.build, "mode": "live" if is_live else "replay", "now_ns": time.time_ns()}
        yield _frame(1, as_json(hello))
        yield _frame(2, as_json(self.topology))
        last: npt.NDArray[np.uint8] | None = None
        told: dict[int, bytes] = {}
        at_ns = from_ns
        while not stop() and (is_live or at_ns <= to_ns):
            at_ns = time.time_ns() + self.ahead_ns if is_live else at_ns
            if self.problem is None:
                planes = self.planes(at_ns)
                body = planes if last is None else planes - last
                yield _frame(3 if last is None else 4, struct.pack(">Q", at_ns) + zlib.compress(body.tobytes(), 1))
                last = planes
            drained: list[dict[str, Any]] = [{"link": link} for link in sorted(self.drained)]
            drained += [
                {"link": link, "element": element, "by": "ada", "reason": note, "since_ns": self.started_ns}
                for element, note in self.elements.items()
                for link in self._links_of(element)
            ]
            notes = {"uncertain": [2], "drained": drained}
            for kind, value in ((5, self.events()), (7, self.moves()), (8, notes)):
                body_json = as_json(value)
                if told.get(kind) != body_json:
                    told[kind] = body_json
                    yield _frame(kind, body_json)
            collector = {"name": "collector", "age_ns": None if self.problem else 120_000_000, "problem": self.problem}
            sources = [collector, {"name": "path server", "age_ns": 400_000_000, "problem": None}]
            yield _frame(6, as_json({"now_ns": at_ns, "sources": sources, "flows": {"shown": 1000, "of": 5213}}))
            at_ns += 1_000_000_000
            time.sleep(1 / (1 if is_live else speed))


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack(">IB", len(payload) + 1, kind) + payload


def as_json(value: Any) -> bytes:
    """Return a value as a frame or an answer holds it."""
    return json.dumps(value).encode()


def _resources(kind: str, now_ns: int) -> list[dict[str, Any]]:
    def item(name: str, spec: dict[str, Any], status: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "owner": "ada", "created_ns": now_ns - 600_000_000_000},
            "spec": spec,
            "status": status,
            **more,
        }

    hardware = {"cpu_milli": 64_000, "devices": [{"kind": "gpu"}] * 4}
    if kind == "nodes":
        return [
            item(
                f"node{i}",
                {"hardware": hardware},
                {
                    "ready": i != 2,
                    "reason": "" if i != 2 else "no heartbeat for 52 s",
                    "heartbeat_ns": now_ns - 2_000_000_000,
                },
                shares=[{}] * i,
            )
            for i in range(5)
        ]
    if kind == "pods":
        return [
            item("web-0", {}, {"phase": "running", "node": "node1"}),
            item(
                "train-<b>7</b>",
                {"group": "train"},
                {"phase": "pending", "reasons": ["no node has 8 GPUs free", "node2 is not ready"]},
            ),
        ]
    return []
