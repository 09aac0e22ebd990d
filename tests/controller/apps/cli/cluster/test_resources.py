"""`millrace get`, `describe`, `delete` and `api token`, on a server in a thread."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apps.cli.completion.shells import candidates_of
from tests.controller.apiserver.widget import Widget, WidgetSpec, widgets
from tests.controller.apps.cli.conftest import Run


@pytest.fixture
def widgets_known() -> Iterator[None]:
    with widgets():
        yield


def test_resources_are_shown_and_deleted(served: Place, run: Run) -> None:
    with SyncApiClient(served) as client:
        spec = PodSpec(containers=(Container(name="main", image="busybox"),), priority=3)
        client.of(Pod).create(Pod(metadata=Metadata(name="a", labels={"app": "web"}), spec=spec))
    out, _ = run("get pods")
    assert [part.strip() for part in out.splitlines()[3].split("│")][1:3] == ["a", "pending"]
    assert json.loads(run("get pods -o json -l app=web")[0])["items"][0]["spec"]["priority"] == 3
    assert json.loads(run("get pods -o json --fields node=h1")[0]) == {"items": []}
    assert yaml.safe_load(run("get pod a -o yaml")[0])["metadata"]["labels"] == {"app": "web"}
    described = yaml.safe_load(run("describe pod a")[0])
    assert described["spec"] == {"containers": [{"name": "main", "image": "busybox"}], "priority": 3}
    assert "status" not in described
    assert json.loads(run("describe pod a --format json")[0]) == described
    assert run("delete pod a --revision 9") == ("", "millrace: Pod a is at revision 1, no longer at 9\n")
    assert run("delete pod a") == ("Pod a is deleted\n", "")
    assert run("get pod a") == ("", "millrace: there is no Pod a\n")
    assert run("get things")[1].startswith("millrace: there is no kind things; known: nodes, pods")
    assert run("get pods -l a=b=c") == ("", "millrace: labels: 'a=b=c' must be one of a=b, a!=b, a, !a\n")


@pytest.mark.usefixtures("widgets_known")
def test_commands_know_a_kind_that_one_row_adds(served: Place, run: Run) -> None:
    with SyncApiClient(served) as client:
        client.of(Widget).create(Widget(metadata=Metadata(name="a"), spec=WidgetSpec(colour="blue")))
    out, _ = run("get widgets")
    assert [part.strip() for part in out.splitlines()[1].split("┃")][1:5] == ["name", "colour", "size", "age"]
    assert [part.strip() for part in out.splitlines()[3].split("│")][1:4] == ["a", "blue", "1"]
    assert yaml.safe_load(run("describe widget a")[0])["spec"] == {"colour": "blue"}
    assert run("delete widget a") == ("Widget a is deleted\n", "")


def test_tokens_are_made_listed_and_revoked(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "h1.token"
    out, err = run(f"api token create --role node --node h1 --hours 2 -o {file}")
    number = err.split()[1]
    assert (out, err) == ("", f"token {number} of h1 (node)\n")
    assert file.stat().st_mode & 0o777 == 0o600
    token = file.read_text().strip()
    assert token.startswith(f"millrace_{number}_")
    listed = run("api token list -f json")[0]
    assert token.split("_", 2)[2] not in listed
    assert [(token["id"], token["role"], token["subject"]) for token in json.loads(listed)] == [(number, "node", "h1")]
    assert run(f"api token create --role user -o {file}")[1].startswith(f"millrace: token file {file}: File exists")
    assert "role node names its node, centre, holder or host" in run("api token create --role node --name x")[1]
    assert "Invalid enum value 'king'" in run("api token create --role king")[1]
    assert run(f"api token revoke {number}")[0] == f"token {number} of h1 is revoked\n"
    assert run(f"api token revoke {number}") == ("", f"millrace: there is no token {number}\n")


def test_unreachable_server_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_API", "127.0.0.1:1")
    remedy = "is it running? `millrace api serve` starts it, and `millrace up` everything"
    problem = f"cannot connect: Connection refused; {remedy}"
    assert run("get pods") == ("", f"millrace: API at 127.0.0.1:1: {problem}\n")


def completed(words: str) -> list[str]:
    """Return the completions of the last word; a trailing space begins a new one."""
    *before, begun = words.split(" ")
    return [candidate.word for candidate in candidates_of(before[1:], begun)]


def test_shells_complete_kinds_and_names(served: Place, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    del run  # sets the address of the server
    with SyncApiClient(served) as client:
        for name in ("reader", "writer"):
            spec = PodSpec(containers=(Container(name="main", image="busybox"),))
            client.of(Pod).create(Pod(metadata=Metadata(name=name), spec=spec))
    assert completed("millrace get po") == ["pods", "podgroups"]
    assert completed("millrace get pods ") == ["reader", "writer"]
    assert completed("millrace delete pod w") == ["writer"]
    assert completed("millrace pod explain r") == ["reader"]
    assert completed("millrace get things ") == []
    assert "reader" in completed("millrace get pod ")
    monkeypatch.setenv("MILLRACE_API", "127.0.0.1:1")  # nothing listens there
    assert completed("millrace get pods ") == []
