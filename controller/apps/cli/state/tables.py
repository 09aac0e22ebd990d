"""`millrace table`: a switch's tables, over P4Runtime."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from controller.apps.cli.shared.output import Cells, Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows
from controller.apps.cli.state.session import Address, DeviceId, ElectionId, Tls, ask, check_name

if TYPE_CHECKING:
    from finsy.p4schema import P4Table

    from controller.network.p4runtime.browsing import SwitchBrowser

table = typer.Typer(name="table", help="List, read and write tables of a running switch.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TABLE", help="Name as in `list`.")]
_ACTION: Final = re.compile(r"(?P<name>[\w.]+)(?:\((?P<arguments>[^()]*)\))?")


class Verb(StrEnum):
    """Operation on an entry."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@table.command("list")
def list_tables(
    address: Address, device_id: DeviceId = None, tls: Tls = None, form: FormatOption = Format.TABLE
) -> None:
    """List the tables of the program that a switch runs: keys, actions, room."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        return [_described(table) for table in browser.schema.tables]

    show_rows(("table", "keys", "actions", "size"), ask(address, device_id, tls, question), form)


@table.command()
def read(
    address: Address, name: Name, device_id: DeviceId = None, tls: Tls = None, form: FormatOption = Format.TABLE
) -> None:
    """Show a table's entries, the default last, with the packets and bytes of a direct counter."""

    async def question(browser: SwitchBrowser) -> list[Cells]:
        return await _entries(browser, name)

    show_rows(("match", "priority", "action", "packets", "bytes"), ask(address, device_id, tls, question), form)


@table.command()
def write(  # noqa: PLR0917 - a command line's options
    address: Address,
    name: Name,
    match: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="5, 0x5, 10.0.0.0/24, 5/&0xf (ternary), 1...9; default: the default entry."
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="NAME(PARAMETER=VALUE,...)", help="Such as 'set_port(port=3)'.")
    ] = None,
    priority: Annotated[int, typer.Option(min=0, help="Priority of ternary and range keys: the higher wins.")] = 0,
    verb: Annotated[Verb, typer.Option(help="Modify the default entry.")] = Verb.INSERT,
    device_id: DeviceId = None,
    election_id: ElectionId = 1,
    tls: Tls = None,
) -> None:
    """Insert, modify or delete an entry, as the switch's primary: not while a controller runs."""
    keys = dict(_pair(pair) for pair in match or ())
    wanted = None if action is None else _action(action)
    if action is None and verb is not Verb.DELETE:
        raise typer.BadParameter("an entry requires an action", param_hint="--action")

    async def question(browser: SwitchBrowser) -> None:
        from finsy import P4TableEntry, P4TableMatch  # noqa: PLC0415
        from finsy.proto import p4r  # noqa: PLC0415

        check_name(browser, "table", name, (table.alias for table in browser.schema.tables))
        entry = P4TableEntry(
            name,
            match=P4TableMatch(keys) if keys else None,
            action=wanted,
            priority=priority,
            is_default_action=not keys,
        )
        kind = Verb.MODIFY if not keys else verb
        await browser.change(p4r.Update.Type.Value(kind.name), entry)

    ask(address, device_id, tls, question, election_id=election_id)


async def _entries(browser: SwitchBrowser, name: str) -> list[Cells]:
    from controller.network.p4runtime.entries import entries_of  # noqa: PLC0415

    check_name(browser, "table", name, (known_table.alias for known_table in browser.schema.tables))
    return list(await entries_of(browser, name))


def _described(table: P4Table) -> Cells:
    keys = [f"{field.alias}: {_kind(field.match_type)} of {field.bitwidth} bits" for field in table.match_fields]
    return table.alias, "; ".join(keys), [action.alias for action in table.actions], table.size


def _kind(match_type: object) -> str:
    """Return a match kind such as `lpm` from finsy's value, or from its text for a program's own kind."""
    return str(getattr(match_type, "name", match_type)).lower()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value


def _action(text: str) -> Any:  # noqa: ANN401 - finsy's action
    from finsy import P4TableAction  # noqa: PLC0415

    match = _ACTION.fullmatch(text.replace(" ", ""))
    if match is None:
        raise typer.BadParameter(f"{text!r} is not NAME(PARAMETER=VALUE,...)", param_hint="--action")
    arguments = [argument for argument in (match["arguments"] or "").split(",") if argument]
    return P4TableAction(match["name"], **dict(_pair(argument) for argument in arguments))
