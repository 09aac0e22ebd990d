"""TLS files are checked before gRPC sees them: some would make it end the whole process."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dataplane.errors import AccessError, ConfigError
from dataplane.rpc.access.settings import TlsSettings, from_environment
from dataplane.rpc.access.tls import TlsFiles, check_client, files_of, server_credentials
from tests.certificates import DAY, Authority


def test_files_that_fit_are_taken(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    check_client(TlsSettings(ca=str(authority.file)))
    both = authority.settings("one")
    check_client(both)
    assert files_of(both) == TlsFiles(Path(str(both.certificate)), Path(str(both.private_key)), authority.file)
    server_credentials(files_of(both))


def test_files_that_do_not_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ca, (certificate, key), (_, other) = str(authority.file), authority.sign("one"), authority.sign("two")
    old, old_key = authority.sign("old", -DAY)
    garbage = tmp_path / "garbage"
    garbage.write_text("garbage", encoding="utf-8")

    def settings(public: object, private: object) -> TlsSettings:
        return TlsSettings(ca=ca, certificate=str(public), private_key=str(private))

    for tls, problem in (
        (TlsSettings(ca="none"), "none: tls: cannot read the authority's certificate: No such file"),
        (TlsSettings(ca=str(garbage)), "garbage: tls: it holds no PEM certificate"),
        (settings(certificate, "none"), "none: tls: cannot read the private key: No such file"),
        (settings(garbage, key), "garbage: tls: not a PEM certificate"),
        (settings(certificate, other), "two.key: tls: not a PEM certificate with its unencrypted private key"),
        (settings(old, old_key), "old.crt expired on "),
    ):
        with pytest.raises((ConfigError, AccessError), match=problem) as caught:
            check_client(tls)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"certificate": "a"}, "certificate and private_key belong together"),
        ({"private_key": "a"}, "certificate and private_key belong together"),
        ({"tokens": "a"}, "tokens are for serving"),
    ],
)
def test_half_of_what_is_needed_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        msgspec.convert({"ca": "x", **given}, TlsSettings)
    with pytest.raises(ConfigError, match="needs certificate and private_key"):
        files_of(TlsSettings(ca="x"))


def test_the_environment_says_it_whole_or_not_at_all() -> None:
    assert from_environment({}) is None
    assert from_environment({"MILLRACE_TOKEN_FILE": "t"}) is None  # the API server's, over its socket
    both = {"MILLRACE_CERTIFICATE": "c", "MILLRACE_PRIVATE_KEY": "k"}
    assert from_environment({"MILLRACE_CA": "a", **both}) == TlsSettings(ca="a", certificate="c", private_key="k")
    for part in (both, {"MILLRACE_CA": "a", "MILLRACE_PRIVATE_KEY": "k"}, {"MILLRACE_CERTIFICATE": "c"}):
        with pytest.raises(ValueError, match=r"need MILLRACE_CA|belong together"):
            from_environment(part)
