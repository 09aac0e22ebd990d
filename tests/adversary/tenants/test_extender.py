"""A scheduler extender and unauthorised callers: other holders of certificates, and pages in a browser."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.settings import TlsSettings
from controller.scheduling.extender.settings import ExtenderSettings
from dataplane.config import loads
from dataplane.errors import ConfigError
from tests.certificates import DAY, Authority
from tests.controller.scheduling.extender.kube_objects import recorded
from tests.controller.scheduling.extender.test_process import ANYWHERE, JSON, playing

VERBS = ("filter", "prioritize", "preempt", "bind")
BIND = b'{"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n"}'


@pytest.mark.parametrize("callers", [None, ("collector",)])
def test_other_certificates_may_not_call(tmp_path: Path, callers: tuple[str, ...] | None) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", 90 * DAY)
    tls = TlsSettings(certificate=str(certificate), private_key=str(key), client_ca=str(authority.file))

    async def status_of(url: str, name: str, path: str) -> int:
        context = ssl.create_default_context(cafile=str(authority.file))
        context.load_cert_chain(*authority.sign(name, DAY, addresses=()))
        async with httpx.AsyncClient(base_url=url, headers=JSON, verify=context) as http:
            answer = await http.post(path, content=BIND if path == "bind" else recorded("filter-nodes"))
            if answer.status_code == 403:
                assert answer.text.startswith(f"the certificate names {name}, none of callers: ")
            return answer.status_code

    async def act(url: str) -> None:
        allowed, refused = ("kube-scheduler", "collector") if callers is None else ("collector", "kube-scheduler")
        for verb in VERBS:
            assert await status_of(url, refused, verb) == 403
        assert await status_of(url, allowed, "filter") == 200

    playing(replace(ANYWHERE, tls=tls, callers=callers), act)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        (JSON | {"Host": "rebound.example:8888"}, 403),
        (JSON | {"Host": "127.0.0.1.example"}, 403),
        (JSON | {"Origin": "https://page.example"}, 403),
        (JSON | {"Host": "localhost:8888"}, 200),
        (JSON, 200),
    ],
)
def test_a_browser_may_not_call_on_loopback(headers: dict[str, str], status: int) -> None:
    async def act(url: str) -> None:
        async with httpx.AsyncClient(base_url=url) as http:
            answer = await http.post("/filter", content=recorded("filter-nodes"), headers=headers)
            assert answer.status_code == status
            assert status == 200 or answer.text.count("\n") == 1

    playing(ANYWHERE, act)


def test_callers_without_certificates_are_refused() -> None:
    with pytest.raises(ConfigError, match="callers: certificate names need a client_ca in tls"):
        loads("{callers: [kube-scheduler]}", ExtenderSettings)
