"""The running extender: over HTTP, with TLS and tokens, with limits, following an API server."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from controller.apiserver.settings import TlsSettings
from controller.apps.cli import main
from controller.common.errors import SchedulerError
from controller.scheduling.extender.process import serve
from controller.scheduling.extender.service import ExtenderService
from controller.scheduling.extender.settings import ExtenderLimits, ExtenderSettings, KubernetesSettings
from controller.scheduling.settings import MetricsSettings
from dataplane.local.deadline import local_timeout
from tests.certificates import DAY, Authority
from tests.controller.scheduling.extender.api_double import kube_double
from tests.controller.scheduling.extender.extending import peers
from tests.controller.scheduling.extender.kube_objects import a_node, a_pod, arguments, recorded
from tests.waiting import HANG_S, until

WAIT_S = 60.0
JSON = {"Content-Type": "application/json"}
ANYWHERE = ExtenderSettings(listen="127.0.0.1:0", topology="fat-tree:k=4", host_label="millrace.io/host")


def playing(settings: ExtenderSettings, act: Callable[[str], Awaitable[None]]) -> None:
    """Run a function on the URL of a running extender, with that of its metrics, if any."""

    async def run() -> None:
        stop, lines = asyncio.Event(), asyncio.Queue[str]()
        task = asyncio.create_task(serve(settings, stop, lines.put_nowait))
        first = asyncio.create_task(lines.get())
        async with local_timeout(WAIT_S, "a test"):
            await asyncio.wait({task, first}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                first.cancel()
                await task
            try:
                await act((await first).removeprefix("extender at "))
            finally:
                stop.set()
                await task

    asyncio.run(run())


def test_verbs_over_http(tmp_path: Path) -> None:
    async def act(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, headers=JSON) as http:
            answer = await http.post("/filter", content=recorded("filter-nodes"))
            assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
            assert len(answer.json()["Nodes"]["items"]) == 4
            answer = await http.post("/prioritize", content=recorded("prioritize-nodes"))
            assert {"Host": "worker-3", "Score": 10} in answer.json()
            why = (await http.get("/pods/default/bodies")).json()
            assert (why["asked"], why["passed"], why["refused_by"]) == (8, 4, {"network-need": 4})
            assert "network-need: h3: 10000.0 Mbit/s are free" in why["refused"]["worker-5"]
            assert (await http.get("/pods/default/nobody")).status_code == 404
            assert (await http.get("/healthz")).text == "ok\n"
            for path, body, status in (
                ("/filter", b"{", 400),
                ("/prioritize", recorded("prioritize-names"), 422),
                ("/nothing", b"{}", 404),
            ):
                answer = await http.post(path, content=body)
                assert (answer.status_code, answer.text.count("\n")) == (status, 1)
            assert (await http.get("/filter")).status_code == 405

    playing(ANYWHERE, act)


def test_it_follows_an_api_server_and_binds(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("of-the-service-account")

    async def act(url: str) -> None:
        url, metrics = url.split(", metrics at ")
        async with httpx.AsyncClient(base_url=url, headers=JSON) as http:
            double.put(a_pod("web", annotations=peers({"pod": "ps", "max_delay": "1 us"})))
            asked = arguments(a_pod("web", annotations=peers({"pod": "ps", "max_delay": "1 us"})), ["n1", "n2"])

            async def passes_only(content: bytes, node: str) -> bool:
                answer = (await http.post("/filter", content=content)).json()
                assert answer["Error"] == ""
                return bool(answer["NodeNames"] == [node])

            await until(lambda: passes_only(asked, "n2"), "the pod may go farther than its peer", poll_s=0.01)
            body = {"PodName": "web", "PodNamespace": "default", "PodUID": "uid-web", "Node": "n2"}
            assert (await http.post("/bind", content=json.dumps(body))).json() == {"Error": ""}
            assert double.pod("web")["spec"]["nodeName"] == "n2"
            double.put(a_node("n1", "h1", nvidia_com__gpu="1"))
            wanted = arguments(a_pod("gpu", nvidia_com__gpu="1"), ["n1", "n2"])
            await until(lambda: passes_only(wanted, "n1"), "the new GPU is not seen", poll_s=0.01)
            text = (await http.get(metrics)).text
            assert 'millrace_extender_known{kind="node"} 2.0' in text
            assert 'millrace_extender_requests_total{outcome="some",verb="bind"} 1.0' in text

    with kube_double("of-the-service-account") as double:
        double.put(a_node("n1", "h1"))
        double.put(a_node("n2", "h2"))
        double.put(a_pod("ps", "n2", phase="Running"))
        kubernetes = KubernetesSettings(server=double.url, ca=None, token_file=str(token))
        settings = replace(ANYWHERE, kubernetes=kubernetes, metrics=MetricsSettings(port=0))
        playing(settings, act)


def test_five_thousand_whole_nodes() -> None:
    nodes = [a_node(f"n{number}", f"h{number % 16 + 1}") for number in range(5000)]
    body = arguments(a_pod("p", annotations=peers({"host": "h1", "max_delay": "4 us"})), nodes)

    async def act(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, headers=JSON, timeout=HANG_S) as http:
            answer = (await http.post("/filter", content=body)).json()
            assert answer["Error"] == ""
            assert len(answer["Nodes"]["items"]) + len(answer["FailedAndUnresolvableNodes"]) == 5000

    playing(replace(ANYWHERE, limits=ExtenderLimits(answer_s=60, body_s=60)), act)


def test_large_slow_or_late_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(self: ExtenderService, body: bytes) -> bytes:
        await asyncio.get_running_loop().create_future()
        return body

    monkeypatch.setattr(ExtenderService, "prioritize", never)

    async def act(url: str) -> None:
        async with httpx.AsyncClient(base_url=url, headers=JSON) as http:
            answer = await http.post("/filter", content=b" " * 20_000)
            assert answer.status_code == 413
            answer = await http.post("/prioritize", content=b"{}")
            assert (answer.status_code, answer.text) == (503, "prioritize: no decision within 0.05 s\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        head = b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head + b"Content-Length: 100\r\n\r\n{")
        await writer.drain()
        assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()

    playing(replace(ANYWHERE, limits=ExtenderLimits(request_bytes=10_000, answer_s=0.05, body_s=0.2)), act)


def test_client_without_a_certificate_of_the_ca_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "other")
    certificate, key = authority.sign("server", 90 * DAY)
    tls = TlsSettings(certificate=str(certificate), private_key=str(key), client_ca=str(authority.file))

    async def ask(url: str, shown: tuple[Path, Path] | None) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(authority.file))
        if shown is not None:
            context.load_cert_chain(*shown)
        async with httpx.AsyncClient(base_url=url, headers=JSON, verify=context) as http:
            return await http.post("/filter", content=recorded("filter-nodes"))

    async def act(url: str) -> None:
        assert url.startswith("https://")
        assert (await ask(url, authority.sign("kube-scheduler", DAY))).status_code == 200
        for shown in (None, stranger.sign("stranger", DAY), authority.sign("old", -DAY)):
            with pytest.raises(httpx.TransportError):
                await ask(url, shown)

    playing(replace(ANYWHERE, tls=tls), act)


def test_a_certificate_that_was_renewed_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first replacement is not a certificate: the one in use stays."""
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", 90 * DAY)
    tls = TlsSettings(certificate=str(certificate), private_key=str(key), client_ca=str(authority.file))
    context = ssl.create_default_context(cafile=str(authority.file))
    context.load_cert_chain(*authority.sign("kube-scheduler", DAY))

    async def serial(url: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), ssl=context)
        number = writer.get_extra_info("peercert")["serialNumber"]
        writer.close()
        with suppress(ssl.SSLError, ConnectionError):
            await writer.wait_closed()
        del reader
        return str(number)

    async def act(url: str) -> None:
        first = await serial(url)
        certificate.write_text("no certificate")
        await until(
            lambda: "reload failed; keeping the previous certificate" in caplog.text, "the reload does not fail"
        )
        assert await serial(url) == first
        renewed, its_key = authority.sign("renewed", 90 * DAY)
        its_key.replace(key)
        renewed.replace(certificate)

        async def is_renewed() -> bool:
            return await serial(url) != first

        await until(is_renewed, "the renewed certificate is not used", poll_s=0.01)

    with caplog.at_level("INFO", "millrace.extender"):
        playing(replace(ANYWHERE, tls=tls, certificate_check_s=0.01), act)
    assert f"certificate {certificate} is in use" in caplog.text


def test_a_token_as_a_bearers_or_in_the_url(tmp_path: Path) -> None:
    """Kube-schedulers have no setting for tokens; they send the user and password of urlPrefix as Basic."""
    file = tmp_path / "token"
    file.write_text("a-secret-of-some-length\n")

    async def act(url: str) -> None:
        body = recorded("filter-nodes")
        async with httpx.AsyncClient(base_url=url, headers=JSON) as http:
            for headers, auth, status in (
                ({"Authorization": "Bearer a-secret-of-some-length"}, httpx.USE_CLIENT_DEFAULT, 200),
                ({}, ("kube-scheduler", "a-secret-of-some-length"), 200),
                ({}, httpx.USE_CLIENT_DEFAULT, 401),
                ({"Authorization": "Bearer a-secret-of-some-lengtH"}, httpx.USE_CLIENT_DEFAULT, 401),
                ({"Authorization": "Basic ====="}, httpx.USE_CLIENT_DEFAULT, 401),
                ({}, ("a-secret-of-some-length", ""), 401),
            ):
                answer = await http.post("/filter", content=body, headers=headers, auth=auth)
                assert answer.status_code == status
            assert answer.text == "a valid token is required\n"

    playing(replace(ANYWHERE, token_file=str(file)), act)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "listen: 0.0.0.0:8888",
            "others can reach 0.0.0.0:8888: it needs tls, and a client_ca or a token_file",
        ),
        ("listen: 127.0.0.1:0\ntoken_file: TMP/short", "a token of 5 characters is too short; at least 16"),
        ("listen: 127.0.0.1:0\ntoken_file: TMP/nothing", "token_file: TMP/nothing: No such file or directory"),
        ("listen: 127.0.0.1:0\ntopology: TMP/nothing.yaml", "TMP/nothing.yaml"),
        ("listen: 127.0.0.1:0\nnetwork: {}", "network: the network's state needs a topology"),
        ("lisen: x", "lisen: unknown key"),
        ("kubernetes: {server: 'http://10.0.0.1:8080'}", "is neither https://HOST:PORT nor http on loopback"),
        ("kubernetes: {certificate: c.pem}", "certificate and private_key belong together"),
        ("listen: 127.0.0.1:0\nkubernetes: {}", "KUBERNETES_SERVICE_HOST is not set"),
        ("profiles: [{scores: [{policy: magic}]}]", "unknown policy 'magic'"),
    ],
)
def test_settings_that_cannot_be_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    problem: str,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    (tmp_path / "short").write_text("short")
    file = tmp_path / "extender.yaml"
    file.write_text(text.replace("TMP", str(tmp_path)))
    monkeypatch.setattr("sys.argv", ["millrace", "scheduler", "extend", "--settings", str(file)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in {0, None}
    error = capsys.readouterr().err
    assert problem.replace("TMP", str(tmp_path)) in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_an_address_that_is_taken_is_named() -> None:
    async def act(url: str) -> None:
        with pytest.raises(SchedulerError, match=r"cannot serve the extender at 127\.0\.0\.1:"):
            await serve(replace(ANYWHERE, listen=url.removeprefix("http://")), asyncio.Event())

    playing(ANYWHERE, act)
