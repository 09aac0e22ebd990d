"""`millrace certs`: a private authority, certificates with roles, and tokens for services over TLS."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.amounts import in_days, in_hours
from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from cryptography import x509

    from dataplane.rpc.access import Principal

certs = typer.Typer(
    name="certs", help="Make an authority, certificates with roles, and tokens for TLS.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Option("--folder", "-d", metavar="FOLDER", help="Folder of certificates and keys.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Days = Annotated[float, typer.Option(parser=in_days(0.001, 36_500), help="Validity.")]
_Role = Annotated[
    str | None,
    typer.Option(help="user, worker, service, admin, ...; default: service with --address, worker with --host."),
]
_Host = Annotated[str | None, typer.Option(help="Host of a worker; for other roles the node, centre or holder.")]
_Projects = Annotated[
    list[str] | None, typer.Option("--project", help="A user's project; the first is the default for new resources.")
]
_Rights = Annotated[
    list[str] | None, typer.Option("--right", help="A user's right beyond reading: change, operate, ...")
]
_FOLDER: Final = Path("certs")
_COLUMNS: Final = ("file", "name", "role", "subject", "rights", "addresses", "ends", "days", "signed by")
_DAY_S: Final = 86_400


@certs.command()
def authority(
    folder: Folder = _FOLDER,
    name: Annotated[str, typer.Option(help="Common name.")] = "Millrace authority",
    days: Days = 3650.0,
    force: Force = False,
) -> None:
    """Create an authority: distribute its certificate; keep its key where certificates are signed."""
    from dataplane.rpc.access.authority import new_authority  # noqa: PLC0415
    from dataplane.rpc.access.certificate_files import AUTHORITY, write_pair  # noqa: PLC0415

    pair = new_authority(name, now=_now(), lasts=_days(days))
    _print_pair(write_pair(folder, AUTHORITY, pair, replaces=force), pair.certificate)


@certs.command()
def issue(  # noqa: PLR0917 - a command line's options
    name: Annotated[str, typer.Argument(help="Name of the holder, for files and logs.")],
    folder: Folder = _FOLDER,
    addresses: Annotated[
        list[str] | None, typer.Option("--address", help="DNS name or IP of a service; repeatable.")
    ] = None,
    role: _Role = None,
    host: _Host = None,
    rights: _Rights = None,
    projects: _Projects = None,
    days: Days = 90.0,
    force: Force = False,
) -> None:
    """Sign a certificate for a service (with its addresses), a worker (with its host) or a person."""
    from dataplane.rpc.access.authority import issued  # noqa: PLC0415
    from dataplane.rpc.access.certificate_files import AUTHORITY, read_pair, write_pair  # noqa: PLC0415

    principal = _principal(
        name, role or ("service" if addresses else "worker" if host else None), host, rights or [], projects or []
    )
    pair = issued(read_pair(folder, AUTHORITY), name, principal, addresses or [], now=_now(), lasts=_days(days))
    _print_pair(write_pair(folder, _not_the_authority(name), pair, replaces=force), pair.certificate)


@certs.command()
def renew(
    names: Annotated[list[str] | None, typer.Argument(help="Names; default: all but the authority's.")] = None,
    folder: Folder = _FOLDER,
    within: Annotated[
        float | None, typer.Option(parser=in_days(), help="Only those that expire within this time.")
    ] = None,
    days: Annotated[
        float | None, typer.Option(parser=in_days(0.001, 36_500), help="Validity; default: as before.")
    ] = None,
) -> None:
    """Renew certificates with the same names and new keys; servers use them without a restart."""
    from dataplane.rpc.access.authority import renewed  # noqa: PLC0415
    from dataplane.rpc.access.certificate_files import (  # noqa: PLC0415
        AUTHORITY,
        certificates_in,
        files_of,
        read_certificate,
        read_pair,
        write_pair,
    )

    signer, now = read_pair(folder, AUTHORITY), _now()
    chosen = names or [file.stem for file in certificates_in(folder) if file.stem != AUTHORITY]
    done = 0
    for name in map(_not_the_authority, chosen):
        certificate = read_certificate(files_of(folder, name)[0])
        if within is not None and certificate.not_valid_after_utc > now + _days(within):
            continue
        pair = renewed(signer, certificate, now=now, lasts=None if days is None else _days(days))
        _print_pair(write_pair(folder, name, pair, replaces=True), pair.certificate)
        done += 1
    if not done:
        typer.echo("nothing to renew", err=True)


@certs.command("show")
def show_certificates(
    files: Annotated[list[Path] | None, typer.Argument(help="PEM files; default: all in the folder.")] = None,
    folder: Folder = _FOLDER,
    form: FormatOption = Format.TABLE,
) -> None:
    """List certificates: subject, role, addresses and expiry; times are UTC."""
    from dataplane.rpc.access.certificate_files import certificates_in, read_certificate  # noqa: PLC0415

    rows = [_cells(file, read_certificate(file)) for file in files or certificates_in(folder)]
    show(_COLUMNS, rows, form)


@certs.command()
def token(  # noqa: PLR0917 - a command line's options
    name: Annotated[str, typer.Argument(help="Name of the holder.")],
    tokens: Annotated[Path, typer.Option(metavar="FILE", help="The service's `tls.tokens`, which stores the hash.")],
    role: _Role = None,
    host: _Host = None,
    rights: _Rights = None,
    projects: _Projects = None,
    hours: Annotated[
        float | None, typer.Option(parser=in_hours(0.001), help="Validity; default: until removed.")
    ] = None,
) -> None:
    """Create a token for a service that requires tokens, and print it: it is shown only once."""
    import time  # noqa: PLC0415

    from dataplane.errors import AccessError  # noqa: PLC0415
    from dataplane.rpc.access.token_files import append_record  # noqa: PLC0415
    from dataplane.rpc.access.tokens import new_token  # noqa: PLC0415

    who = _principal(name, role or ("worker" if host else None), host, rights or [], projects or [])
    now_ns = time.time_ns()
    expires_ns = None if hours is None else now_ns + round(hours * 3600e9)
    try:
        text, record = new_token(
            who.name,
            who.role,
            who.subject,
            now_ns=now_ns,
            expires_ns=expires_ns,
            rights=who.rights,
            projects=who.projects,
        )
    except ValueError as error:
        raise AccessError(f"token: {error}") from None
    append_record(tokens, record)
    typer.echo(text)
    typer.echo(f"token {record.id} of {who}; remove its line from {tokens} to revoke it", err=True)


def _principal(name: str, role: str | None, subject: str | None, rights: list[str], projects: list[str]) -> Principal:
    from dataplane.errors import AccessError  # noqa: PLC0415
    from dataplane.rpc.access import Principal, Right, Role  # noqa: PLC0415
    from dataplane.rpc.access.values import problem_of  # noqa: PLC0415

    if role is None:
        raise AccessError("a --role is required, or the --address of a service, or the --host of a worker")
    try:
        principal = Principal(name, Role(role), subject, tuple(Right(right) for right in rights), tuple(projects))
    except ValueError as error:
        raise AccessError(f"{error}; roles are {', '.join(Role)}, rights {', '.join(Right)}") from None
    problem = problem_of(principal.role, principal.subject, principal.rights, principal.projects)
    if problem is not None:
        raise AccessError(problem)
    return principal


def _not_the_authority(name: str) -> str:
    from dataplane.errors import AccessError  # noqa: PLC0415
    from dataplane.rpc.access.certificate_files import AUTHORITY  # noqa: PLC0415

    if name == AUTHORITY:
        raise AccessError(f"{AUTHORITY} is the authority's own name: `millrace certs authority` makes one")
    return name


def _cells(file: Path, certificate: x509.Certificate) -> Cells:
    from cryptography import x509  # noqa: PLC0415

    from dataplane.rpc.access.names import alternative_names, common_name, principal_in  # noqa: PLC0415

    principal, ends = principal_in(certificate), certificate.not_valid_after_utc
    addresses = [
        str(address) for kind in (x509.DNSName, x509.IPAddress) for address in alternative_names(certificate, kind)
    ]
    constraints = [
        extension.value for extension in certificate.extensions if isinstance(extension.value, x509.BasicConstraints)
    ]
    is_authority = any(constraint.ca for constraint in constraints)
    role = "authority" if is_authority else None if principal is None else principal.role.value
    left = (ends - _now()).total_seconds() / _DAY_S
    issuer = [
        str(attribute.value) for attribute in certificate.issuer.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    ]
    return (
        str(file),
        common_name(certificate),
        role,
        None if principal is None else principal.subject,
        None if principal is None else " ".join(principal.rights) or None,
        " ".join(addresses) or None,
        f"{ends:%Y-%m-%d %H:%M}",
        "expired" if left <= 0 else f"{left:.0f}",
        "".join(issuer[:1]),
    )


def _print_pair(files: tuple[Path, Path], certificate: x509.Certificate) -> None:
    ends = certificate.not_valid_after_utc
    typer.echo(f"{files[0]}, {files[1]}: until {ends:%Y-%m-%d %H:%M} UTC")


def _now() -> datetime:
    from dataplane.rpc.access.certificates import now_utc  # noqa: PLC0415

    return now_utc()


def _days(days: float) -> timedelta:
    from datetime import timedelta  # noqa: PLC0415

    return timedelta(days=days)
