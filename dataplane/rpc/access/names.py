"""Roles and rights in a certificate: URI alternative names, which any authority can issue.

`urn:millrace:role:ROLE`, or `urn:millrace:role:ROLE:SUBJECT` of a node, centre, holder or worker's host, once;
`urn:millrace:right:RIGHT` and `urn:millrace:project:PROJECT` for each right and project of a user. The common name is
the holder's name in logs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.x509.oid import NameOID

from dataplane.errors import AccessError
from dataplane.rpc.access.values import Principal, Right, Role, problem_of

_ROLE: Final = "urn:millrace:role:"
_RIGHT: Final = "urn:millrace:right:"
_PROJECT: Final = "urn:millrace:project:"


def uris_of(principal: Principal) -> list[str]:
    """Return the URIs of a role and of rights; the principal's own name is not among them."""
    subject = "" if principal.subject is None else f":{quote(principal.subject, safe='')}"
    return [
        f"{_ROLE}{principal.role.value}{subject}",
        *(f"{_RIGHT}{right.value}" for right in principal.rights),
        *(f"{_PROJECT}{project}" for project in principal.projects),
    ]


def principal_in(certificate: x509.Certificate) -> Principal | None:
    """Return a certificate's principal, None if it has no role; raise AccessError for an invalid role."""
    name = common_name(certificate)
    uris = [uri for uri in alternative_names(certificate, x509.UniformResourceIdentifier) if isinstance(uri, str)]
    roles = [uri.removeprefix(_ROLE) for uri in uris if uri.startswith(_ROLE)]
    rights = [uri.removeprefix(_RIGHT) for uri in uris if uri.startswith(_RIGHT)]
    projects = tuple(uri.removeprefix(_PROJECT) for uri in uris if uri.startswith(_PROJECT))
    if not roles and not rights and not projects:
        return None
    if len(roles) != 1:
        raise AccessError(f"the certificate of {name} has {len(roles)} roles, not one")
    role, separator, subject = roles[0].partition(":")
    try:
        principal = Principal(
            name, Role(role), unquote(subject) if separator else None, tuple(Right(right) for right in rights), projects
        )
    except ValueError as error:
        raise AccessError(f"the certificate of {name}: {error}") from None
    problem = problem_of(principal.role, principal.subject, principal.rights, principal.projects)
    if problem is not None:
        raise AccessError(f"the certificate of {name}: {problem}")
    return principal


@lru_cache(maxsize=1024)
def principal_of_pem(pem: bytes) -> Principal | None:
    """Return the principal of a certificate that TLS has verified, like `principal_in`."""
    return principal_in(x509.load_pem_x509_certificate(pem))


@lru_cache(maxsize=1024)
def principal_of_der(der: bytes) -> Principal | None:
    """Return the principal of a certificate that TLS has verified, like `principal_in`."""
    return principal_in(x509.load_der_x509_certificate(der))


def common_name(certificate: x509.Certificate) -> str:
    """Return a certificate's common name."""
    attributes = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(attributes[0].value) if attributes else "nobody"


def alternative_names(certificate: x509.Certificate, kind: type[x509.GeneralName]) -> list[object]:
    """Return a certificate's alternative names of a kind."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return [name.value for name in names if isinstance(name, kind)]
