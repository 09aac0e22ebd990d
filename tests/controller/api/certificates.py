"""Certificates of an authority of the test's own."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """Signs certificates of 127.0.0.1 into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of tests")])
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._signed(self._name, self._key, 365 * DAY, authority=True))

    def sign(self, name: str, lasts: timedelta) -> tuple[Path, Path]:
        """Write a certificate that lasts so long from now on, below 0: that has ended; return it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate, private = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate.write_bytes(self._signed(subject, key, lasts))
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, private

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: timedelta, *, authority: bool = False
    ) -> bytes:
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 400 * DAY)
            .not_valid_after(now + lasts)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)
