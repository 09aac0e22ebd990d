"""`millrace demo --web`: the run in the page at the pace of the clock, from its first browser to its end."""

from __future__ import annotations

import json
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from controller.apiserver.view.frames import Frame
from dataplane.clock import NS_PER_S
from tests.waiting import HANG_S

SETTINGS = """
scenario: {hops_per_s: 1000, warm_up: 500ms, before: 1s, during: 2400ms, after: 1200ms}
"""
OWN = {"X-Millrace": "page", "Sec-Fetch-Site": "same-origin"}


def test_a_run_is_seen_from_its_first_browser_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text(SETTINGS, encoding="utf-8")
    command = [sys.executable, "-m", "controller.apps.cli", "demo", "--web", "--settings", "demo.yaml", "--out", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        try:
            assert demo.stdout is not None
            address, code = next(
                found.groups() for line in demo.stdout if (found := re.search(r"open (\S+)/#(\S+)", line))
            )
            with httpx.Client(
                base_url=address, headers={"Origin": address, **OWN}, timeout=HANG_S, trust_env=False
            ) as tab:
                tab.post("/v1/view/session", json={"code": code}).raise_for_status()
                moves, problem = watched(tab)
            assert any("is overloaded" in move["reason"] for move in moves)
            assert problem == "the run has ended: the time bar looks back on it"
            rest = _until(demo, "later:")
            assert "Load as planned" in rest
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(HANG_S)
    assert demo.returncode == 0
    assert json.loads((tmp_path / "out/figures.json").read_text())["moves"] == len(moves)
    assert (tmp_path / "out/history/topology.yaml").is_file()


def watched(tab: httpx.Client) -> tuple[list[dict[str, Any]], str]:
    """Read the page's stream until a source has a problem; return the moves, and the problem."""
    moves: list[dict[str, Any]] = []
    with tab.stream("GET", "/v1/view/stream") as stream:
        for kind, payload in frames(stream.iter_raw()):
            if kind == Frame.MOVES:
                moves = json.loads(payload)
            elif kind == Frame.HEARTBEAT:
                for source in json.loads(payload)["sources"]:
                    if source["problem"]:
                        return moves, source["problem"]
                    assert (source["age_ns"] or 0) < HANG_S * NS_PER_S, f"{source['name']} is silent, nobody says why"
    raise AssertionError("the stream ended")


def frames(parts: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the frames of a stream: kind and payload."""
    data = b""
    for part in parts:
        data += part
        while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack_from(">I", data)[0]):
            yield data[4], data[5 : 4 + size]
            data = data[4 + size :]


def _until(demo: subprocess.Popen[str], text: str) -> str:
    """Return the output up to a line that has a text."""
    assert demo.stdout is not None
    shown = ""
    for line in demo.stdout:
        shown += line
        if text in line:
            return shown
    raise AssertionError(shown)
