"""A private certificate authority and the certificates it signs: X.509 v3 (RFC 5280), keys on the curve P-256.

A certificate with addresses is for servers and clients, one without only for clients, so that the certificate of a
person or a worker can never stand in for a service. The authority signs certificates, but no other authorities.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dataplane.errors import AccessError
from dataplane.rpc.access.names import common_name, uris_of
from dataplane.rpc.access.values import Principal

SKEW: Final = timedelta(minutes=5)
"""Time before its creation from which a certificate is valid: clocks differ."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate, PEM-encoded."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key, PEM-encoded and unencrypted, so that daemons can start."""
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(encoding, form, serialization.NoEncryption())


def pair_of(certificate: bytes, key: bytes, name: str) -> Pair:
    """Parse PEM files into a pair; raise AccessError, naming `name`, for unusable ones."""
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise AccessError(f"{name}: no certificate with its unencrypted key: {' '.join(str(error).split())}") from None
    if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != parsed.public_key():
        raise AccessError(f"{name}: the key is not on an elliptic curve, or belongs to another certificate")
    return Pair(parsed, private)


def new_authority(name: str, *, now: datetime, lasts: timedelta) -> Pair:
    """Return a self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Pair(_signed(_begun(name, key, now, now + lasts), name, key, key.public_key(), is_authority=True), key)


def issued(
    authority: Pair,
    name: str,
    principal: Principal | None,
    addresses: Sequence[str],
    *,
    now: datetime,
    lasts: timedelta,
) -> Pair:
    """Return a certificate with a name, a role if a principal is given, and a server's addresses: DNS names or IPs.

    It ends no later than the authority's own; raise AccessError if that has expired, or for an invalid name.
    """
    uris = [] if principal is None else [x509.UniformResourceIdentifier(uri) for uri in uris_of(principal)]
    return _issued(authority, name, [*(_address(address) for address in addresses), *uris], now, lasts)


def renewed(authority: Pair, certificate: x509.Certificate, *, now: datetime, lasts: timedelta | None = None) -> Pair:
    """Return a certificate with another's names and lifetime, and a new key."""
    if not is_issued_by(authority, certificate):
        raise AccessError(f"the certificate of {common_name(certificate)} was signed by another authority")
    if lasts is None:
        lasts = certificate.not_valid_after_utc - certificate.not_valid_before_utc - SKEW
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    return _issued(authority, common_name(certificate), names, now, lasts)


def is_issued_by(authority: Pair, certificate: x509.Certificate) -> bool:
    """Return whether an authority has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _issued(authority: Pair, name: str, names: Sequence[x509.GeneralName], now: datetime, lasts: timedelta) -> Pair:
    last = authority.certificate.not_valid_after_utc
    if last <= now:
        raise AccessError(f"the authority expired on {last:%Y-%m-%d %H:%M} UTC: make another")
    key = ec.generate_private_key(ec.SECP256R1())
    is_server = any(isinstance(alternative, x509.DNSName | x509.IPAddress) for alternative in names)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if is_server else [])]
    builder = _begun(name, key, now, min(now + lasts, last))
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    issuer = common_name(authority.certificate)
    return Pair(_signed(builder, issuer, authority.key, authority.key.public_key(), is_authority=False), key)


def _begun(name: str, key: ec.EllipticCurvePrivateKey, now: datetime, ends: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePublicKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        builder.issuer_name(_name(issuer))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
        .sign(key, hashes.SHA256())
    )


def _name(common: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    except ValueError as error:
        raise AccessError(f"{common!r} is not a valid name for a certificate: {error}") from None


def _address(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(text.encode("idna").decode("ascii"))
    except (ValueError, UnicodeError):
        raise AccessError(f"{text!r} is neither a host's name nor an IP address") from None
