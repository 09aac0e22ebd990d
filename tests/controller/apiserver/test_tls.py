"""Addresses, certificates and token files: who can reach the API server, and what it accepts from disk."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place, find_place
from controller.apiserver.process import serve
from controller.apiserver.resources import Node, Pod
from controller.apiserver.settings import ApiSettings, TlsSettings
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import ForbiddenError, InvalidError, UnauthorizedError, UnavailableError
from dataplane.config import loads
from dataplane.errors import AccessError, ConfigError
from dataplane.rpc.access import Principal, Role
from tests.certificates import DAY, Authority
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.apiserver.test_resources_over_http import node


def test_no_address_but_loopback_without_tls() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0:1 is neither loopback nor a UNIX socket: set tls"):
        loads("{storage: {sqlite: x}, listen: ['0.0.0.0:1']}", ApiSettings)
    with pytest.raises(ConfigError, match="name:1 is neither loopback"):
        loads("{storage: {sqlite: x}, listen: ['name:1']}", ApiSettings)
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:2379|it is not loopback, and there is no tls"):
        loads("{storage: {etcd: {addresses: ['192.0.2.1:2379']}}}", ApiSettings)
    plain = loads("{storage: {etcd: {addresses: ['plain:192.0.2.1:2379', '127.0.0.1:2379']}}}", ApiSettings).storage
    assert plain.etcd is not None
    assert plain.etcd.target == "ipv4:192.0.2.1:2379,127.0.0.1:2379"
    with pytest.raises(ConfigError, match="either sqlite or etcd"):
        loads("{storage: {}}", ApiSettings)
    with pytest.raises(ConfigError, match="unknown key"):
        loads("{storage: {sqlite: x}, port: 1}", ApiSettings)
    with pytest.raises(InvalidError, match="over https only"):
        Place("http://192.0.2.1:1", "token")


def test_a_token_file_is_its_users_alone(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("millrace_x\n")
    file.chmod(0o644)
    environ = {"MILLRACE_TOKEN_FILE": str(file), "MILLRACE_API": "127.0.0.1:9"}
    with pytest.raises(InvalidError, match=f"is readable by others; chmod 600 {file}"):
        find_place(environ=environ)
    file.chmod(0o600)
    assert find_place(environ=environ) == Place("127.0.0.1:9", "millrace_x")
    assert "millrace_x" not in repr(find_place(environ=environ))


def tls_settings(folder: Path, certificate: Path, key: Path) -> ApiSettings:
    tls = TlsSettings(certificate=str(certificate), private_key=str(key))
    return replace(settings_in(folder), tls=tls)


def test_an_expired_certificate_is_refused_at_start(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).sign("old", -DAY)
    with pytest.raises(AccessError, match=rf"certificate {certificate} expired on 20\d\d-\d\d-\d\d"):
        asyncio.run(serve(tls_settings(tmp_path, certificate, key), asyncio.Event()))
    with pytest.raises(ConfigError, match=r"nothing\.pem: tls: cannot read the certificate"):
        asyncio.run(serve(tls_settings(tmp_path, tmp_path / "nothing.pem", key), asyncio.Event()))


def test_tls_serves_and_its_client_verifies_the_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", 3 * DAY)

    async def main() -> None:
        async with serving(tls_settings(tmp_path, certificate, key), tmp_path) as served:
            assert served.url.startswith("https://")
            made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
            async with ApiClient(Place(served.url, made.token, authority.file), tries=1) as client:
                assert (await client.of(Pod).list()).items == ()
            async with ApiClient(Place(served.url, made.token), tries=3) as stranger:
                with pytest.raises(UnavailableError, match="certificate rejected: unable to get local issuer"):
                    await stranger.of(Pod).list()

    asyncio.run(main())
    assert f"certificate {certificate} expires on" in caplog.text


def test_a_certificate_with_a_role_is_as_good_as_a_token(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    tls = TlsSettings(certificate=str(certificate), private_key=str(key), client_ca=str(authority.file))
    pairs = {
        name: authority.sign(name, principal=principal)
        for name, principal in (
            ("ann", Principal("ann", Role.USER)),
            ("h1", Principal("h1", Role.NODE, "h1")),
            ("unmarked", None),
        )
    }

    async def main() -> None:
        async with serving(replace(settings_in(tmp_path), tls=tls), tmp_path) as served:

            def client(name: str | None, token: str | None = None) -> ApiClient:
                address = Place(served.url, token, authority.file, *(() if name is None else pairs[name]))
                return ApiClient(address, tries=1)

            async with client("ann") as ann, client("h1") as h1, client("unmarked") as unmarked:
                assert (await ann.of(Pod).list()).items == ()
                with pytest.raises(ForbiddenError, match=r"ann \(user\) may not create"):
                    await ann.of(Node).create(node("h1"))
                assert (await h1.of(Node).create(node("h1"))).metadata.name == "h1"
                with pytest.raises(ForbiddenError, match="may not create"):
                    await h1.of(Node).create(node("h2"))
                with pytest.raises(UnauthorizedError, match="a bearer token or a certificate with a role is required"):
                    await unmarked.of(Pod).list()
            made = await served.client.create_token(TokenRequest(name="root", role=Role.ADMIN))
            async with client("unmarked", made.token) as both:
                assert (await both.of(Pod).list()).items == ()
            async with client(None, made.token) as nobody:
                with pytest.raises(UnavailableError):
                    await nobody.of(Pod).list()

    asyncio.run(main())


def test_a_client_refuses_an_expired_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("old", -DAY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def main() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            address = Place(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", "token", authority.file)
            async with ApiClient(address, tries=3) as client:
                with pytest.raises(UnavailableError, match="certificate rejected: certificate has expired"):
                    await client.of(Pod).list()

    asyncio.run(main())
