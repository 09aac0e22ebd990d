"""`millrace api`: the API server, and its tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.amounts import in_hours
from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.output import Format, FormatOption, show, utc

if TYPE_CHECKING:
    from controller.apiserver.client import SyncApiClient
    from controller.apiserver.tokens import NewToken, TokenRequest


api = typer.Typer(name="api", help="Run the API server; manage its tokens.", no_args_is_help=True)
token = typer.Typer(name="token", help="Manage tokens of users, nodes, centres and services.", no_args_is_help=True)
api.add_typer(token)

Address = Annotated[
    str | None,
    typer.Option(
        "--api", metavar="ADDRESS", help="unix:PATH, HOST:PORT or URL; default: $MILLRACE_API, else the socket."
    ),
]
_Node = Annotated[str | None, typer.Option("--node", help="Node that the token is for (role node).")]
_Centre = Annotated[str | None, typer.Option("--centre", help="Centre that the token is for (role centre).")]
_Holder = Annotated[str | None, typer.Option("--holder", help="Holder of units that the token is for (role holder).")]
_Settings = Annotated[
    Path | None,
    typer.Option("--settings", "-s", metavar="FILE", help="Write to this file's storage, while no server runs."),
]
_HOUR_S: Final = 3600.0


@api.command()
def serve(settings: SettingsFile) -> None:
    """Run the API server: resources over HTTP, kept in a storage."""
    from controller.apiserver import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@token.command("create")
def create_token(  # noqa: PLR0917 - a command line's options
    role: Annotated[str, typer.Option(help="user, viewer, node, centre, holder, placement, balance, service, admin.")],
    name: Annotated[str | None, typer.Option(help="Name of its owner; default: the node, centre or holder.")] = None,
    node: _Node = None,
    centre: _Centre = None,
    holder: _Holder = None,
    rights: Annotated[
        list[str] | None, typer.Option("--right", help="A user's right beyond the role: exec, kernels, scoring.")
    ] = None,
    projects: Annotated[
        list[str] | None,
        typer.Option("--project", help="A user's project; repeatable; the first is the default for new resources."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option(parser=in_hours(0.001), help="Validity; default: until revoked.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-o", metavar="FILE", help="Write it to a new file that only you can read.")
    ] = None,
    address: Address = None,
    settings: _Settings = None,
) -> None:
    """Create a token and print it: it is shown only once, as the server keeps only its hash."""
    request = _request(role, name, node or centre or holder, hours, rights or [], projects or [])
    if settings is None:
        with client_of(address) as client:
            made = client.create_token(request)
    else:
        made = asyncio.run(_created(settings, request))
    if file is None:
        typer.echo(made.token)
    else:
        _write_new(file, made.token)
    typer.echo(f"token {made.shown.id} of {made.shown.name} ({made.shown.role.value})", err=True)


@token.command("list")
def list_tokens(address: Address = None, form: FormatOption = Format.TABLE) -> None:
    """List tokens, without their secrets; times are UTC."""
    with client_of(address) as client:
        tokens = client.tokens()
    columns = ("id", "name", "role", "subject", "rights", "projects", "created", "expires")
    times = ((utc(token.created_ns), None if token.expires_ns is None else utc(token.expires_ns)) for token in tokens)
    rows = (
        (token.id, token.name, token.role.value, token.subject, list(token.rights), list(token.projects), *when)
        for token, when in zip(tokens, times, strict=True)
    )
    show(columns, rows, form)


@token.command("revoke")
def revoke_token(
    number: Annotated[str, typer.Argument(metavar="ID", help="ID as in `millrace api token list`.")],
    address: Address = None,
) -> None:
    """Revoke a token at once."""
    with client_of(address) as client:
        gone = client.revoke_token(number)
    typer.echo(f"token {gone.id} of {gone.name} is revoked")


def client_of(address: str | None) -> SyncApiClient:
    """Return a client of the API at an address, by default the environment's."""
    from controller.apiserver.client import SyncApiClient, find_place  # noqa: PLC0415

    return SyncApiClient(find_place(address))


def _request(  # noqa: PLR0917 - a command line's options
    role: str, name: str | None, subject: str | None, hours: float | None, rights: list[str], projects: list[str]
) -> TokenRequest:
    import msgspec  # noqa: PLC0415

    from controller.apiserver.tokens import TokenRequest  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415

    raw = {
        "name": name or subject or role,
        "role": role,
        "subject": subject,
        "rights": rights,
        "projects": projects,
    }
    try:
        return msgspec.convert(raw | ({} if hours is None else {"lasts_s": hours * _HOUR_S}), TokenRequest)
    except msgspec.ValidationError as error:
        raise InvalidError(f"token: {error}") from None


async def _created(settings: Path, request: TokenRequest) -> NewToken:
    import time  # noqa: PLC0415

    from controller.apiserver.process import load_settings, opened  # noqa: PLC0415
    from controller.apiserver.tokens import Tokens  # noqa: PLC0415

    async with opened(load_settings(settings).storage) as storage:
        return await Tokens(storage, time.time_ns).create(request)


def _write_new(file: Path, text: str) -> None:
    import os  # noqa: PLC0415

    from controller.common.errors import ApiError  # noqa: PLC0415

    try:
        # O_EXCL neither overwrites a file nor follows a link.
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ApiError(f"token file {file}: {error.strerror}") from None
    with os.fdopen(number, "w", encoding="ascii") as out:
        out.write(text + "\n")
