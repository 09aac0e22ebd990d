"""Validity periods of our certificates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dataplane.errors import AccessError, ConfigError
from dataplane.given import SECRET_BYTES, read_given

WARN_BEFORE: Final = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Validity:
    """Validity period of a certificate."""

    file: Path
    begins: datetime
    ends: datetime

    def check(self, now: datetime) -> str | None:
        """Raise AccessError if the certificate is not valid now; return a warning if it soon expires, else None."""
        if now >= self.ends:
            raise AccessError(f"certificate {self.file} expired on {self.ends:%Y-%m-%d %H:%M} UTC")
        if now < self.begins:
            raise AccessError(f"certificate {self.file} is not valid before {self.begins:%Y-%m-%d %H:%M} UTC")
        if now >= self.ends - WARN_BEFORE:
            return f"certificate {self.file} expires on {self.ends:%Y-%m-%d %H:%M} UTC"
        return None


def validity_of(file: Path) -> Validity:
    """Return the period in which all certificates of a PEM file are valid; raise ConfigError."""
    from cryptography import x509  # noqa: PLC0415 - takes a while to load

    try:
        certificates = x509.load_pem_x509_certificates(read_given(file, SECRET_BYTES))
    except OSError as error:
        raise ConfigError(f"cannot read the certificate: {error.strerror}", file=str(file), key="tls") from error
    except ValueError as error:
        raise ConfigError("it holds no PEM certificate", file=str(file), key="tls") from error
    begins = max(certificate.not_valid_before_utc for certificate in certificates)
    return Validity(file, begins, min(certificate.not_valid_after_utc for certificate in certificates))


def now_utc() -> datetime:
    """Return the current time for validity checks."""
    return datetime.now(UTC)
