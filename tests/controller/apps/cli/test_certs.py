"""`millrace certs`: signed subjects, files that are not overwritten, and one line for each error."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509

from dataplane.rpc.access import Right, Role
from dataplane.rpc.access.names import principal_in
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import check_client
from dataplane.rpc.access.token_files import read_records
from dataplane.rpc.access.tokens import principal_of
from tests.certificates import DAY, Authority
from tests.controller.apps.cli.conftest import Run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """Change to a folder with its own authority and return it."""
    monkeypatch.chdir(tmp_path)
    assert run("certs authority")[0].startswith("certs/authority.crt, certs/authority.key: until ")
    return tmp_path / "certs"


def rows(run: Run, line: str = "") -> dict[str, dict[str, object]]:
    table = json.loads(run(f"certs show --format json {line}")[0])
    return {Path(row["file"]).stem: row for row in table}


def test_certificates_name_their_subjects(here: Path, run: Run) -> None:
    run("certs issue feed --address collector.example --address 192.0.2.5")
    run("certs issue w1 --host h1 --days 1")
    run("certs issue eve --role user --right operate --right change")
    table = rows(run)
    assert (table["feed"]["role"], table["feed"]["addresses"]) == ("service", "collector.example 192.0.2.5")
    assert (table["w1"]["role"], table["w1"]["subject"], table["w1"]["days"]) == ("worker", "h1", "1")
    assert (table["eve"]["rights"], table["eve"]["signed by"]) == ("operate change", "Millrace authority")
    assert (table["authority"]["role"], table["authority"]["name"]) == ("authority", "Millrace authority")
    for name in ("authority", "feed", "w1", "eve"):
        assert stat.S_IMODE((here / f"{name}.key").stat().st_mode) == 0o600
    usages = {name: usages_of(here / f"{name}.crt") for name in ("feed", "w1", "eve")}
    assert usages == {"feed": {"clientAuth", "serverAuth"}, "w1": {"clientAuth"}, "eve": {"clientAuth"}}
    check_client(TlsSettings(ca=f"{here}/authority.crt", certificate=f"{here}/w1.crt", private_key=f"{here}/w1.key"))


def usages_of(file: Path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    return {str(usage._name) for usage in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value}


def test_nothing_is_overwritten_unless_asked(here: Path, run: Run) -> None:
    run("certs issue ann --role user")
    before = (here / "ann.key").read_bytes()
    for line in ("authority", "issue ann --role admin"):
        assert run(f"certs {line}")[1].endswith(".key already exists; --force replaces it\n")
    (here / "bob.key").symlink_to(here / "nowhere")
    assert "bob.key already exists" in run("certs issue bob --role user")[1]
    assert (here / "ann.key").read_bytes() == before
    assert run("certs issue ann --role user --force")[1] == ""
    assert (here / "ann.key").read_bytes() != before


def test_renewed_certificate_keeps_its_names(here: Path, run: Run) -> None:
    run("certs issue feed --address localhost --days 20")
    run("certs issue ann --role user --right change")
    key = (here / "feed.key").read_bytes()
    assert run("certs renew --within 10") == ("", "nothing to renew\n")
    out, _ = run("certs renew --within 30")
    assert out.startswith("certs/feed.crt, certs/feed.key: until ")
    assert "ann" not in out
    assert (here / "feed.key").read_bytes() != key
    run("certs renew ann --days 5")
    table = rows(run)
    assert (table["feed"]["addresses"], table["feed"]["days"]) == ("localhost", "20")
    assert (table["ann"]["rights"], table["ann"]["days"]) == ("change", "5")
    Authority(here, "other").sign("old", -DAY)
    problem = "millrace: the certificate of old was signed by another authority\n"
    assert run("certs renew other-old")[1] == problem
    assert rows(run, "certs/other-old.crt")["other-old"]["days"] == "expired"


def test_tokens_are_kept_as_hashes(here: Path, run: Run) -> None:
    token, errors = run("certs token bob --tokens tokens --role user --right change --hours 1")
    records = read_records(here.parent / "tokens")
    assert token.strip() not in (here.parent / "tokens").read_text()
    (record,) = records.values()
    assert errors.startswith(f"token {record.id} of bob (user); remove its line from tokens to revoke it")
    principal = principal_of(token.strip(), records, record.created_ns)
    assert (principal.role, principal.rights) == (Role.USER, (Right.CHANGE,))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("issue x", "a --role is required, or the --address of a service, or the --host of a worker"),
        ("issue x --role king", "'king' is not a valid Role; roles are user, "),
        ("issue x --role worker", "role worker names its node, centre, holder or host"),
        ("issue x --role user --host h1", "role user names none"),
        ("issue x --role worker --host h1 --right operate", "rights are for role user, not worker"),
        ("issue ../x --role user", "'../x' is not a valid name: use at most 63 letters, digits and ._@-"),
        ("issue authority --role user", "authority is the authority's own name"),
        ("issue x --address 'a b..c'", "'a b..c' is neither a host's name nor an IP address"),
        (
            "issue x --role user --folder elsewhere",
            "elsewhere/authority.key: No such file or directory; `millrace certs",
        ),
        ("renew nobody", "certs/nobody.crt: No such file or directory"),
        ("show nothing.crt", "nothing.crt: No such file or directory"),
        ("show --folder elsewhere", "there is no folder elsewhere"),
        ("token x --tokens nowhere/tokens --role user", "tokens nowhere/tokens: No such file or directory"),
    ],
)
@pytest.mark.usefixtures("here")
def test_invalid_input_is_one_line(line: str, problem: str, run: Run) -> None:
    out, err = run(f"certs {line}")
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"millrace: {problem}")


def test_a_key_that_others_read_signs_nothing(here: Path, run: Run) -> None:
    (here / "authority.key").chmod(0o644)
    problem = "certs/authority.key is readable by others; chmod 600 certs/authority.key"
    assert run("certs issue x --role user")[1] == f"millrace: {problem}\n"


def test_roles_of_other_authorities_that_cannot_be_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.sign("plain")
    assert principal_in(x509.load_pem_x509_certificate(certificate.read_bytes())) is None
