"""TLS files are checked before gRPC sees them: over some it would end the whole process."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from controller.errors import ControllerError
from controller.p4runtime.grpc_session import TlsSettings


def pair(folder: Path, name: str) -> tuple[str, str]:
    """Write a self-signed certificate and its key; return both files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


def test_files_that_fit_are_taken(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "one")
    TlsSettings(ca=certificate).check()
    TlsSettings(ca=certificate, certificate=certificate, private_key=key).check()


def test_files_that_do_not_are_named(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "one")
    _, other = pair(tmp_path, "two")
    garbage = tmp_path / "garbage"
    garbage.write_text("garbage", encoding="utf-8")
    for settings, problem in (
        (TlsSettings(ca="none"), "tls.ca: none: No such file"),
        (TlsSettings(ca=str(garbage)), "tls.ca: .*garbage"),
        (TlsSettings(ca=certificate, certificate=certificate), "go together"),
        (TlsSettings(ca=certificate, private_key=key), "go together"),
        (TlsSettings(ca=certificate, certificate=certificate, private_key="none"), "tls.private_key: .*No such file"),
        (TlsSettings(ca=certificate, certificate=str(garbage), private_key=key), "tls.certificate"),
        (TlsSettings(ca=certificate, certificate=certificate, private_key=other), "tls.private_key"),
    ):
        with pytest.raises(ControllerError, match=problem):
            settings.check()
