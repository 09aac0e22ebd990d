"""OpenID Connect tokens: identify users by signature, issuer, audience, times and groups.

An issuer's keys are read from the URL in its discovery document, once an hour and when a token names an unknown key,
but at most every ten seconds. While the issuer is down the previous keys stay valid.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import httpx
import jwt
import msgspec
from msgspec import Meta

from dataplane.config import Strict
from dataplane.errors import AccessError
from dataplane.malformed import MALFORMED
from dataplane.rpc.access import Principal, Right, Role
from dataplane.rpc.access.tokens import ProjectName
from dataplane.rpc.access.values import SUBJECTS
from dataplane.rpc.addresses import is_loopback

LOGGER: Final = logging.getLogger("millrace.api")

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures that only the issuer can make: with HS256 anyone who knows the public key could."""
_NAME: Final = re.compile(r"[!-~]{1,100}")
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_FRESH_S: Final = 3600.0
_RETRY_S: Final = 10.0
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_LEEWAY_S: Final = 30
_URL: Final = re.compile(r"(?P<scheme>https?)://(?P<host>\[[0-9a-fA-F:.]+\]|[^/?#@\s:\[\]]+)(?::\d+)?(?:/[^?#\s]*)?")

Group = Annotated[str, Meta(min_length=1, max_length=256)]


class OidcIssuer(Strict, frozen=True):
    """A trusted issuer, and the roles of its groups."""

    issuer: str
    """Its URL as in its tokens; https, or http on loopback."""
    audience: Annotated[str, Meta(min_length=1)]
    """Tokens for other audiences are refused."""
    name_claim: str = "sub"
    name_prefix: str = "oidc:"
    """Prefix of the claim's value in user names; no user with a local token has a name like that."""
    groups_claim: str = "groups"
    roles: dict[Group, Role] = msgspec.field(default_factory=dict)
    """Role per group: admin, service, user, ...; if several match, the first in this order."""
    everyone: Role | None = None
    """Role of users in none of these groups; null: refused."""
    projects: dict[Group, ProjectName] = msgspec.field(default_factory=dict)
    """Project per group, for role user; new resources go to the first that matches, in this order."""
    rights: dict[Group, tuple[Right, ...]] = msgspec.field(default_factory=dict)
    """Additional rights per group."""
    ca: str | None = None
    """A PEM file to verify the issuer's certificate with, instead of the system's authorities."""

    def __post_init__(self) -> None:
        _check_url("issuer", self.issuer)
        for role in (*self.roles.values(), self.everyone):
            if role in SUBJECTS:
                raise ValueError(f"roles: {role.value} is for one node, centre, holder or host, not for a group")


class OidcIdentities:
    """Authenticates tokens of several issuers; not thread-safe: use it from one event loop."""

    def __init__(self, issuers: Sequence[OidcIssuer]) -> None:
        self._issuers = {issuer.issuer: _Issuer(issuer) for issuer in issuers}

    def is_for(self, token: str) -> bool:
        """Return whether a token is for these issuers: a JSON web token that is not one of the server's own."""
        return bool(self._issuers) and token.count(".") == 2

    async def prepare(self, token: str) -> None:
        """Read an issuer's keys if a token names an unknown key or the known ones are old."""
        key, issuer = self._named(token)
        if issuer is not None:
            await issuer.refresh(key)

    def principal_of(self, token: str) -> Principal:
        """Return the principal of a token; raise AccessError."""
        key, issuer = self._named(token)
        if issuer is None:
            raise AccessError("the token's issuer is unknown")
        return issuer.principal_of(token, key)

    def _named(self, token: str) -> tuple[str, _Issuer | None]:
        """Return the key id and issuer in a token, before any of it is verified."""
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, RecursionError):
            raise AccessError("invalid token") from None
        issuer = claims.get("iss")
        return str(header.get("kid", "")), self._issuers.get(issuer) if isinstance(issuer, str) else None


class _Issuer:
    def __init__(self, settings: OidcIssuer) -> None:
        self._settings = settings
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_s = self._tried_s = float("-inf")
        self._lock = asyncio.Lock()
        self._said = ""

    async def refresh(self, key: str) -> None:
        """Read the keys if this one is unknown or they are old, unless that was tried just now."""
        if self._is_fine(key):
            return
        async with self._lock:
            now_s = time.monotonic()
            # Another request may have read the keys while this one waited for the lock.
            if self._is_fine(key) or now_s - self._tried_s < _RETRY_S:
                return
            # Set before the attempt, so that a failing issuer is not asked again by every request.
            self._tried_s = now_s
            try:
                self._keys = await self._read()
            except (httpx.HTTPError, jwt.PyJWTError, AccessError, *MALFORMED) as error:
                problem = str(error) or type(error).__name__
                if problem != self._said:
                    LOGGER.warning("keys of issuer %s: %s", self._settings.issuer, problem)
                self._said = problem
            else:
                self._read_s, self._said = now_s, ""

    def _key(self, key: str) -> jwt.PyJWK | None:
        """Return a key by its id; with a single key the id may be missing."""
        match = self._keys.get(key)
        return next(iter(self._keys.values())) if match is None and not key and len(self._keys) == 1 else match

    def _is_fine(self, key: str) -> bool:
        return self._key(key) is not None and time.monotonic() - self._read_s < _FRESH_S

    def principal_of(self, token: str, key: str) -> Principal:
        settings = self._settings
        web_key = self._key(key)
        if web_key is None:
            raise AccessError(f"issuer {settings.issuer} has no known key {key[:40]!r}")
        try:
            claims = jwt.decode(
                token,
                web_key,
                # Never trust the algorithm that the token names: a forger would choose the weakest.
                algorithms=ALGORITHMS,
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise AccessError(f"token of issuer {settings.issuer}: {error}") from None
        return self._principal(claims)

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        name, listed = claims.get(settings.name_claim), claims.get(settings.groups_claim, [])
        if not isinstance(name, str) or _NAME.fullmatch(settings.name_prefix + name) is None:
            raise AccessError(f"token of issuer {settings.issuer}: its {settings.name_claim} is not a valid name")
        several = listed if isinstance(listed, list) else [listed]
        groups = {group for group in several if isinstance(group, str)}
        role = next((role for group, role in settings.roles.items() if group in groups), settings.everyone)
        if role is None:
            raise AccessError(f"{name} is in no group that issuer {settings.issuer} gives a role here")
        if role is not Role.USER:
            return Principal(settings.name_prefix + name, role)
        projects = dict.fromkeys(project for group, project in settings.projects.items() if group in groups)
        rights = dict.fromkeys(right for group, some in settings.rights.items() if group in groups for right in some)
        return Principal(settings.name_prefix + name, role, None, tuple(rights), tuple(projects))

    async def _read(self) -> dict[str, jwt.PyJWK]:
        """Return the issuer's keys by id."""
        verify = self._settings.ca or True
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, verify=verify, trust_env=False) as client:
            document = await _json(client, self._settings.issuer.rstrip("/") + _WELL_KNOWN)
            # The two must be identical (OpenID Connect Discovery 1.0, section 4.3).
            if document.get("issuer") != self._settings.issuer:
                raise AccessError(f"its discovery document names issuer {str(document.get('issuer'))[:200]!r}")
            url = document.get("jwks_uri")
            try:
                _check_url("jwks_uri", url if isinstance(url, str) else "")
            except ValueError as error:
                raise AccessError(str(error)) from None
            keys = (await _json(client, str(url))).get("keys")
        signing_keys = {}
        for web_key in keys if isinstance(keys, list) else []:
            # Skip keys for encryption and of unknown kinds.
            if (
                isinstance(web_key, dict)
                and web_key.get("use", "sig") == "sig"
                and web_key.get("kty") in {"RSA", "EC", "OKP"}
            ):
                signing_keys[str(web_key.get("kid", ""))] = jwt.PyJWK(web_key)
        if not signing_keys:
            raise AccessError(f"{url} has no signing keys")
        return signing_keys


async def _json(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
    async with client.stream("GET", url) as answer:
        if answer.status_code != httpx.codes.OK:
            raise AccessError(f"{url} answers {answer.status_code}")
        data = bytearray()
        async for part in answer.aiter_bytes():
            data += part
            if len(data) > _MOST_BYTES:
                raise AccessError(f"{url} answers with more than {_MOST_BYTES} bytes")
    return msgspec.json.decode(bytes(data), type=dict[str, Any])


def _check_url(what: str, url: str) -> None:
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError(f"{what}: {url[:200]!r} is not a URL of an issuer")
    if match["scheme"] == "http" and not is_loopback(f"{match['host']}:80"):
        raise ValueError(f"{what}: {url[:200]} is neither https nor on loopback")
