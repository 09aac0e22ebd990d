"""Tokens of a running OpenID Connect issuer: their principals, and every refusal of forged ones."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.oidc import OidcIdentities, OidcIssuer
from controller.apiserver.resources import Metadata, Pod, Task
from controller.apiserver.resources.pod import Container, PodSpec
from controller.common.errors import ForbiddenError, UnauthorizedError
from dataplane.errors import AccessError
from dataplane.rpc.access import Principal, Right, Role
from tests.controller.apiserver.api_server import serving, settings_in

# The issuer's own packages use deprecated functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
provider = pytest.importorskip("oidc_provider_mock", reason="needs oidc-provider-mock")

AUDIENCE = "millrace"
_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
GROUPS = {"ada": ["vision-team", "anything"], "eve": [], "root": ["operators"]}


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    users = [provider.User(sub=name, claims={"groups": groups}) for name, groups in GROUPS.items()]
    with provider.run_server_in_thread(user_claims=users) as server:
        yield f"http://localhost:{server.server_port}"


def settings(issuer: str, **more: Any) -> OidcIssuer:
    return OidcIssuer(
        issuer=issuer,
        audience=AUDIENCE,
        roles={"operators": Role.ADMIN, "vision-team": Role.USER},
        projects={"vision-team": "vision"},
        rights={"vision-team": (Right.EXEC,)},
        **more,
    )


def signed_in(issuer: str, name: str, audience: str = AUDIENCE) -> str:
    """Return the token that the issuer gives a user after the code flow, as in a browser."""
    back = "http://localhost/back"
    asked = {"client_id": audience, "redirect_uri": back, "response_type": "code", "scope": "openid"}
    with httpx.Client(trust_env=False) as browser:
        answer = browser.post(f"{issuer}/oauth2/authorize", params=asked, data={"sub": name})
        code = httpx.URL(answer.headers["location"]).params["code"]
        grant = {"grant_type": "authorization_code", "code": code, "redirect_uri": back}
        answer = browser.post(f"{issuer}/oauth2/token", data=grant, auth=(audience, "any"))
        return str(answer.json()["id_token"])


def test_groups_are_roles_projects_and_rights_here(issuer: str, tmp_path: Path) -> None:
    async def main() -> None:
        wanted = replace(settings_in(tmp_path), oidc=(settings(issuer),))
        async with serving(wanted, tmp_path) as served:
            ada, root, eve = (
                ApiClient(Place(served.url, signed_in(issuer, name)), tries=1) for name in ("ada", "root", "eve")
            )
            async with ada, root, eve:
                spec = PodSpec(containers=(Container(name="m", image="i"),))
                made = await ada.of(Pod).create(Pod(metadata=Metadata(name="p"), spec=spec))
                assert (made.metadata.owner, made.metadata.project) == ("oidc:ada", "vision")
                assert len(await root.tokens()) == 0
                with pytest.raises(ForbiddenError, match="may not see or change tokens"):
                    await ada.tokens()
                with pytest.raises(UnauthorizedError, match=r"eve is in no group that issuer .* gives a role here"):
                    await eve.of(Task).list()
            async with ApiClient(Place(served.url, signed_in(issuer, "ada", "others")), tries=1) as other:
                with pytest.raises(UnauthorizedError, match="Audience doesn't match"):
                    await other.of(Task).list()

    asyncio.run(main())


def test_principal_follows_the_settings(issuer: str) -> None:
    principal = asyncio.run(judged(settings(issuer), signed_in(issuer, "ada")))
    assert principal == Principal("oidc:ada", Role.USER, None, (Right.EXEC,), ("vision",))
    everybody = asyncio.run(judged(settings(issuer, everyone=Role.USER), signed_in(issuer, "eve")))
    assert everybody == Principal("oidc:eve", Role.USER)


async def judged(issuer: OidcIssuer, token: str) -> Principal:
    identities = OidcIdentities([issuer])
    await identities.prepare(token)
    return identities.principal_of(token)


class Keys:
    """An issuer whose keys and documents the test can change."""

    def __init__(self) -> None:
        self.key = _KEY
        self.kid, self.asked, self.is_away = "one", 0, False
        self.document: Callable[[], dict[str, object]] = lambda: {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        keys = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                keys.asked += 1
                body = json.dumps(keys.document() if "well-known" in self.path else keys.published()).encode()
                self.send_response(503 if keys.is_away else 200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def published(self) -> dict[str, object]:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{"kty": "oct", "k": "aaaa"}, {**key, "kid": self.kid, "use": "sig"}]}

    def token(self, **claims: object) -> str:
        told = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "groups": "vision-team", "exp": time.time() + 600}
        payload = {name: value for name, value in {**told, **claims}.items() if value is not None}
        return jwt.encode(payload, self.key, algorithm="RS256", headers={"kid": self.kid})


@pytest.fixture
def keys() -> Iterator[Keys]:
    published = Keys()
    yield published
    published.server.shutdown()
    published.server.server_close()


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"exp": time.time() - 600}, "expired"),
        ({"exp": None}, "exp"),
        ({"aud": None}, "aud"),
        # From when tests are collected, which may be long before this one runs.
        ({"nbf": time.time() + 86_400}, "not yet valid"),
        ({"sub": None}, "its sub is not a valid name"),
        ({"sub": "a b"}, "its sub is not a valid name"),
        ({"sub": "\x1b[31m"}, "its sub is not a valid name"),
        ({"sub": "a" * 200}, "its sub is not a valid name"),
        ({"groups": {"vision-team": 1}}, "in no group"),
        ({"groups": None}, "in no group"),
        ({"groups": [["vision-team"], 7]}, "in no group"),
        ({"iss": "http://127.0.0.1:1"}, "the token's issuer is unknown"),
    ],
)
def test_tokens_that_do_not_count(keys: Keys, claims: dict[str, object], problem: str) -> None:
    with pytest.raises(AccessError, match=problem):
        asyncio.run(judged(settings(keys.url), keys.token(**claims)))


def test_signatures_that_do_not_count(keys: Keys) -> None:
    token = keys.token()
    assert asyncio.run(judged(settings(keys.url), token)).name == "oidc:ada"
    head, body, signature = token.split(".")
    other = jwt.encode(jwt.decode(token, options={"verify_signature": False}), "", algorithm="none")
    public = keys.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = _with_hmac(head, body, public)
    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 3000).decode().rstrip("=")
    own, keys.key = keys.key, rsa.generate_private_key(public_exponent=65537, key_size=2048)
    forged, keys.key = keys.token(), own
    broken = f"{head}.{body}.{signature[:-4]}AAAA"
    for bad in (other, forged, f"{head}.{body}.", broken, confused, f"{deep}.{body}.{signature}", ".."):
        with pytest.raises(AccessError):
            asyncio.run(judged(settings(keys.url), bad))


def _with_hmac(head: str, body: str, secret: bytes) -> str:
    """Return a token signed by HMAC with the public key, which everybody knows."""
    named = json.loads(base64.urlsafe_b64decode(head + "=="))
    head = base64.urlsafe_b64encode(json.dumps({**named, "alg": "HS256"}).encode()).decode().rstrip("=")
    tag = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
    return f"{head}.{body}.{base64.urlsafe_b64encode(tag).decode().rstrip('=')}"


def test_keys_are_reloaded_only_for_new_ones(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        now_s = [1000.0]
        monkeypatch.setattr("controller.apiserver.oidc.time.monotonic", lambda: now_s[0])
        identities = OidcIdentities([settings(keys.url)])
        old = keys.token()
        await identities.prepare(old)
        asked, keys.kid = keys.asked, "two"
        for _ in range(5):
            await identities.prepare(keys.token())
        assert keys.asked == asked
        now_s[0] += 10
        await identities.prepare(keys.token())
        assert identities.principal_of(keys.token()).name == "oidc:ada"
        with pytest.raises(AccessError, match="has no known key 'one'"):
            identities.principal_of(old)
        keys.is_away = True
        now_s[0] += 4000
        await identities.prepare(keys.token())
        assert identities.principal_of(keys.token()).name == "oidc:ada"

    asyncio.run(main())


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "http://127.0.0.1:1/other", "jwks_uri": "http://127.0.0.1:1/keys"},
        {"issuer": "", "jwks_uri": 7},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": "http://127.0.0.1:80@10.0.0.1/keys"},
        {"jwks_uri": "http://10.0.0.1/keys"},
    ],
)
def test_documents_of_issuers_that_are_not_believed(
    keys: Keys, document: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    keys.document = lambda: {"issuer": keys.url, **document}
    with pytest.raises(AccessError, match="has no known key 'one'"):
        asyncio.run(judged(settings(keys.url), keys.token()))
    assert re.search(r"keys of issuer http://127\.0\.0\.1:\d+: ", caplog.text)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"issuer": "http://example.org", "audience": "a"}, "neither https nor on loopback"),
        ({"issuer": "http://127.0.0.1:1@example.org", "audience": "a"}, "is not a URL of an issuer"),
        ({"issuer": "https://example.org", "audience": ""}, "audience"),
        ({"issuer": "https://example.org", "audience": "a", "everyone": "node"}, "role.*node"),
    ],
)
def test_settings_that_are_refused(raw: dict[str, object], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert(raw, OidcIssuer)
