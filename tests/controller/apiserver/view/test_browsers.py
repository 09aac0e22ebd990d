"""The page's files, signing in, and what a browser may do with its cookie, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.resources import Metadata, Project
from controller.apiserver.settings import ViewSettings
from controller.apiserver.tokens import TokenRequest
from controller.apiserver.view.files import PageFiles
from controller.apiserver.view.signing_in import CODE_NS, SignIns
from controller.common.errors import UnauthorizedError
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Principal, Role
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in

OWN = {"X-Millrace": "page"}


@asynccontextmanager
async def browser(served: Served) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Origin": served.url, "Sec-Fetch-Site": "same-origin", **OWN}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, trust_env=False) as client:
        yield client


async def signed_in(served: Served, client: httpx.AsyncClient, *, viewer: bool = False) -> None:
    made = await served.client.new_code(viewer=viewer)
    assert made.urls == (served.url,)
    answer = await client.post("/v1/view/session", json={"code": made.code})
    assert answer.status_code == 200, answer.text


def play(folder: Path, act: Callable[[Served], Awaitable[None]], view: ViewSettings | None = None) -> None:
    async def main() -> None:
        settings = replace(settings_in(folder), view=view or ViewSettings())
        async with local_timeout(WAIT_S, "a test"), serving(settings, folder) as served:
            await act(served)

    asyncio.run(main())


def test_files_carry_the_policy_and_are_cached_by_name(tmp_path: Path) -> None:
    files = PageFiles()

    async def act(served: Served) -> None:
        async with browser(served) as client:
            page = await client.get("/")
            assert page.status_code == 200
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
            assert page.headers["cache-control"] == "no-cache"
            again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            for path in files.by_path:
                file = await client.get(path)
                assert file.content == files.by_path[path].body
                assert file.headers["x-content-type-options"] == "nosniff"
            assert (await client.get("/assets/../../settings.py")).status_code in {401, 404}

    play(tmp_path, act)


def test_code_signs_in_once(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client, browser(served) as other:
            assert (await client.get("/v1/view/me")).status_code == 401
            code = (await served.client.new_code()).code
            answer = await client.post("/v1/view/session", json={"code": code})
            assert (answer.json()["name"], answer.json()["role"]) == ("local", "admin")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
            assert (await client.get("/v1/view/me")).json()["role"] == "admin"
            again = await other.post("/v1/view/session", json={"code": code})
            assert again.status_code == 401
            assert "used before" in again.json()["detail"]
            assert (await client.delete("/v1/view/session")).status_code == 204
            assert (await client.get("/v1/view/me")).status_code == 401

    play(tmp_path, act)


def test_viewer_sees_everything_and_changes_nothing(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        await served.client.of(Project).create(Project(metadata=Metadata(name="alpha")))
        async with browser(served) as client:
            await signed_in(served, client, viewer=True)
            listed = (await client.get("/v1/projects")).json()["items"]
            assert [item["metadata"]["name"] for item in listed] == ["alpha"]
            for kind in ("pods", "tasks", "nodes", "centres", "decisions", "unitpools"):
                assert (await client.get(f"/v1/{kind}")).status_code == 200, kind
            for method, path, body in (
                ("POST", "/v1/projects", {"kind": "Project", "metadata": {"name": "beta"}}),
                ("DELETE", "/v1/projects/alpha", None),
                ("POST", "/v1/tokens", {"name": "x", "role": "admin"}),
                ("GET", "/v1/tokens", None),
                ("POST", "/v1/evictions", {"evictions": [{"pod": "p", "epoch": 1, "reason": "x"}]}),
            ):
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 403, (path, answer.text)

    play(tmp_path, act)


def test_only_the_page_acts_with_its_cookie(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client:
            await signed_in(served, client)
            project = {"kind": "Project", "metadata": {"name": "alpha"}}
            for headers in (
                {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
                {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
                {"Sec-Fetch-Site": "same-site"},
                {"X-Millrace": "no"},
            ):
                answer = await client.post("/v1/projects", json=project, headers=headers)
                assert answer.status_code == 403, headers
                assert "only the page itself" in answer.json()["detail"]
            rebound = await client.get("/v1/view/me", headers={"Host": f"evil.example:{client.base_url.port}"})
            # Cookies of the name's port are looked for whatever the name is.
            assert rebound.status_code == 403
            assert "view.hosts" in rebound.json()["detail"]
            assert (await client.get("/", headers={"Host": "evil.example"})).status_code == 403
            assert (await client.post("/v1/projects", json=project)).status_code == 201

    play(tmp_path, act)


def test_named_hosts_are_served(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client:
            for host, status in (("fabric.example", 200), ("FABRIC.example:80", 200), ("[::1]:80", 200), ("x", 403)):
                assert (await client.get("/", headers={"Host": host})).status_code == status, host

    play(tmp_path, act, ViewSettings(hosts=("fabric.example",)))


def test_session_ends_with_its_token(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
        async with browser(served) as client:
            answer = await client.post("/v1/view/session", json={"token": made.token})
            assert (answer.json()["name"], answer.json()["role"]) == ("ann", "user")
            assert (await client.get("/v1/pods")).status_code == 200
            await served.client.revoke_token(made.shown.id)
            assert (await client.get("/v1/pods")).status_code == 401

    play(tmp_path, act)


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (b"{}", 400, "either a code or a token"),
        (b'{"code": "a", "token": "b"}', 400, "either a code or a token"),
        (b"{", 400, "Input data was truncated"),
        (b'{"code": 5}', 400, "Expected `str`, got `int`"),
        (b'{"token": "abc"}', 401, "token"),
        (b'{"code": "%s"}' % (b"x" * 9000), 413, "more than 8192 bytes"),
    ],
)
def test_bad_sign_ins_are_refused_in_one_line(tmp_path: Path, body: bytes, status: int, detail: str) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client:
            answer = await client.post("/v1/view/session", content=body)
            assert answer.status_code == status
            assert detail in answer.json()["detail"]
            assert "\n" not in answer.json()["detail"]

    play(tmp_path, act)


def test_without_a_network_the_stream_still_beats(tmp_path: Path) -> None:
    async def act(served: Served) -> None:
        async with browser(served) as client:
            await signed_in(served, client)
            async with client.stream("GET", "/v1/view/stream") as answer:
                assert answer.headers["content-type"] == "application/vnd.millrace.view"
                async for data in answer.aiter_bytes():
                    assert data[4] == 1
                    break
            missing = await client.get("/v1/view/flows")
            assert missing.status_code == 404
            assert "view.topology" in missing.json()["detail"]

    play(tmp_path, act)


def test_codes_and_sessions_age() -> None:
    now_ns = [0]
    ann = Principal("ann", Role.USER)
    sign_ins = SignIns(lambda: now_ns[0], lasts_ns=10 * CODE_NS, most=2)
    old, _ = sign_ins.new_code(lambda: ann)
    now_ns[0] = CODE_NS
    with pytest.raises(UnauthorizedError, match="older than a minute"):
        sign_ins.by_code(old)
    code, _ = sign_ins.new_code(lambda: ann)
    first = sign_ins.by_code(code)
    assert sign_ins.principal_of(first.secret) == ann
    others = [sign_ins.new(lambda: ann) for _ in range(2)]
    with pytest.raises(Exception, match="sign in again"):
        sign_ins.principal_of(first.secret)
    now_ns[0] += 10 * CODE_NS
    with pytest.raises(Exception, match="sign in again"):
        sign_ins.principal_of(others[0].secret)
