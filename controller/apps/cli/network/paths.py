"""`millrace paths`: the path server, and queries to a running one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.table import Table

from collectors.values import HopRecord, RecordKind
from controller.apps.cli.network.drains import drain, drained, undrain
from controller.apps.cli.network.path_costs import cost
from controller.apps.cli.network.path_server import SERVER, Server, ask, ask_at, flow_name
from controller.apps.cli.network.segments import segments
from controller.apps.cli.shared.common import SettingsFile, run_daemon
from controller.apps.cli.shared.daemon_rows import load_rows, role_rows, warn_overloads
from controller.apps.cli.shared.output import (
    AsJson,
    Cells,
    Format,
    FormatOption,
    OneFormat,
    flat,
    show,
    show_values,
    table_of,
    utc,
)
from controller.apps.cli.shared.units import seconds
from controller.common.console import plain_or_terminal
from controller.network.intents import FlowSpec
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey

if TYPE_CHECKING:
    from controller.network.paths.balancing.values import Rebalance
    from controller.network.paths.deciding.decide import Decision
    from controller.network.paths.deciding.graph import PathFigures
    from controller.network.paths.engineering.engineer import EngineeringRound
    from controller.network.paths.records.values import Explanation, History, HistoryQuery
    from controller.network.paths.service.client import RouteClient

    _Decided = Decision | Rebalance | EngineeringRound

paths = typer.Typer(name="paths", help="Run the path server, or query a running one.", no_args_is_help=True)

for command in (cost, drain, undrain, drained, segments):
    paths.command()(command)

Protocol = Annotated[int | None, typer.Option(min=0, max=255, help="IP protocol of the flow.")]
SrcPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Source port of the flow.")]
DstPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Destination port of the flow.")]
Src = Annotated[str, typer.Argument(help="Name of the sending host.")]
Dst = Annotated[str, typer.Argument(help="Name of the receiving host.")]

_A_TIME: Final = "2026-01-31T12:00 (UTC) or 2026-01-31T12:00+01:00"
_HISTORY_COLUMNS: Final = (
    *("time_ns", "src_host", "dst_host", "protocol", "src_port", "dst_port", "old_path", "new_path"),
    *("switch", "destination", "old_weights", "new_weights", "destinations", "reason"),
)


@paths.command()
def serve(settings: SettingsFile) -> None:
    """Run the path server: record every hop, decide on paths, serve routes."""
    from controller.network.paths.service import process  # noqa: PLC0415

    run_daemon(process.DAEMON, settings)


@paths.command("why", hidden=True, deprecated="Use `explain`.")  # type: ignore[arg-type]
@paths.command()
def explain(  # noqa: PLR0917 - a command line's options
    src: Src,
    dst: Dst,
    server: Server = SERVER,
    protocol: Protocol = None,
    src_port: SrcPort = None,
    dst_port: DstPort = None,
    as_json: AsJson = False,
    form: OneFormat = Format.TABLE,
) -> None:
    """Explain why a flow is on its path: measurements, candidates, reason, last moves; times are UTC."""
    flow = FlowSpec(src, dst, protocol, src_port, dst_port)
    explanation, now = ask_at(server, lambda client: client.why(flow))
    if as_json or form is Format.JSON:
        typer.echo(msgspec.json.encode(explanation).decode())
    else:
        _show_explanation(explanation, now.now_ns)


@paths.command()
def history(  # noqa: PLR0917 - a command line's options
    server: Server = SERVER,
    src: Annotated[str | None, typer.Option(help="Only flows from this host.")] = None,
    dst: Annotated[str | None, typer.Option(help="Only flows to this host.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help=f"Since this time, as {_A_TIME}.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of decisions; the newest are shown.")
    ] = 50,
    form: FormatOption = Format.TABLE,
) -> None:
    """List past decisions: moved flows, changed weights, rounds of traffic engineering; times are UTC."""
    from controller.network.paths.records.values import HistoryQuery  # noqa: PLC0415

    query = HistoryQuery(src, dst, _ns(since, "--since"), _ns(until, "--until"), limit)
    answer, now = ask_at(server, lambda client: client.history(query))
    decided = _selected(query, answer)
    if form is Format.TABLE:
        rows_of_people = ((*_history_cells(decision), seconds(now.now_ns - decision.time_ns)) for decision in decided)
        show(("time", "flow", "path", "why", "age s"), rows_of_people, form)
    else:
        rows = map(flat, decided)
        show(_HISTORY_COLUMNS, ([row.get(column) for column in _HISTORY_COLUMNS] for row in rows), form)


@paths.command()
def routes(server: Server = SERVER, form: FormatOption = Format.TABLE) -> None:
    """List the explicit and the weighted routes in force, and the paths that flows are pinned to."""
    current, _ = ask_at(server, lambda client: client.current_routes())
    pins = {route.flow: route.switches for route in current.pins}
    rows: list[Cells] = [
        (flow_name(route.flow), route.switches, pins.pop(route.flow, None)) for route in current.routes
    ]
    rows += [(flow_name(flow), None, path) for flow, path in pins.items()]
    rows += [(f"all, where another path exists: not over {link}", "drained", None) for link in current.drained]
    for weighted in current.weighted:
        ways = tuple(f"{peer} ({weight})" for peer, weight in weighted.next_hops)
        rows.append((f"all to {weighted.destination} at {weighted.switch}", ways, None))
    show(("flow", "path", "pinned to"), rows, form)


@paths.command("set")
def pin(  # noqa: PLR0917 - a command line's options
    src: Src,
    dst: Dst,
    path: Annotated[list[str], typer.Argument(metavar="SWITCH...", help="All switches of the path, first to last.")],
    server: Server = SERVER,
    protocol: Protocol = None,
    src_port: SrcPort = None,
    dst_port: DstPort = None,
) -> None:
    """Pin a flow to a path until `release`; it leaves the path only while a link of it is down."""
    ask(server, lambda client: client.pin(FlowSpec(src, dst, protocol, src_port, dst_port), tuple(path)))


@paths.command()
def release(  # noqa: PLR0917 - a command line's options
    src: Src,
    dst: Dst,
    server: Server = SERVER,
    protocol: Protocol = None,
    src_port: SrcPort = None,
    dst_port: DstPort = None,
) -> None:
    """Give a pinned flow back: the path server decides about it again."""
    ask(server, lambda client: client.release(FlowSpec(src, dst, protocol, src_port, dst_port)))


@paths.command()
def status(server: Server = SERVER, form: FormatOption = Format.TABLE) -> None:
    """Show the age of the state that the path server decides by, its load and its counters."""
    _, now = ask_at(server, _nothing)
    ages = {
        "state age s": seconds(now.snapshot_age_ns),
        "last round age s": None if now.last_step_ns is None else seconds(now.now_ns - now.last_step_ns),
        "feed": "silent" if now.feed_is_silent else "speaks",
        "route set": now.version,
        "flows": now.flows,
        "explicit routes": now.explicit_routes,
        "pinned flows": now.pinned,
        "drained": now.drained,
    }
    rows = [*role_rows(now.standby), *ages.items()]
    show(("what", "value"), [*rows, *load_rows(now.load), *sorted(now.counters.items())], form)
    if now.last_problem is not None:
        typer.echo(f"last problem: {now.last_problem}", err=True)
    warn_overloads(now.load)


@paths.command("link")
def change_link(
    link: Annotated[str, typer.Argument(metavar="A->B", help="A link between switches, one direction.")],
    state: Annotated[str, typer.Argument(metavar="down|up", help="New state of the link.")],
    server: Server = SERVER,
) -> None:
    """Report to the path server that a link is down (all flows leave it at once) or up again."""
    if state not in ("down", "up"):
        raise typer.BadParameter(f"{state!r} is not down or up", param_hint="down|up")
    from controller.network.paths.records.values import LinkChange  # noqa: PLC0415

    ask(server, lambda client: client.link_changed(LinkChange(_link(link), up=state == "up")))


@paths.command()
def records(  # noqa: PLR0917 - a command line's options
    server: Server = SERVER,
    src: Annotated[str | None, typer.Option(help="Source address (not name); requires --dst.")] = None,
    dst: Annotated[str | None, typer.Option(help="Destination address.")] = None,
    link: Annotated[str | None, typer.Option(metavar="A->B", help="Only hops that sent onto this link.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of rows.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the newest hop records: of all flows, between two addresses, or of a link.

    Times are UTC: when the collector received the hop's report.
    """
    if (src is None) != (dst is None):
        raise typer.BadParameter("--src and --dst require each other")
    from controller.network.paths.records.values import RecordQuery  # noqa: PLC0415

    query = RecordQuery(src=src, dst=dst, link=None if link is None else _link(link), limit=limit)
    rows, now = ask_at(server, lambda client: client.records(query))
    if form is not Format.TABLE:
        show_values(rows, HopRecord, form)
        return
    columns = ("received", "flow", "hop", "node", "in", "out", "latency us", "queue", "tx bytes/window", "age s")
    names = {number: name for name, number in now.nodes.items()}
    show(columns, ((*_record_cells(row, names), seconds(now.now_ns - row.received_ns)) for row in rows), form)


def _record_cells(row: HopRecord, names: Mapping[int, str]) -> Cells:
    flow = f"{row.flow.src}:{row.flow.src_port} → {row.flow.dst}:{row.flow.dst_port}"
    node = f"{names[row.node_id]} ({row.node_id})" if row.node_id in names else row.node_id
    position = (_hop_position(row), node, row.ingress_port, row.egress_port)
    figures = (_us(row.hop_latency_ns), row.queue_occupancy_frames, row.tx_bytes_per_window)
    return (utc(row.received_ns), flow, *position, *figures)


def _hop_position(row: HopRecord) -> str:
    """Return a hop's position on its path, or the kind of a report without one."""
    has_index = row.kind in (RecordKind.STACK, RecordKind.INTERMEDIATE, RecordKind.HOP_BY_HOP)
    return str(row.hop_index) if has_index else row.kind.name.lower()


def _link(text: str) -> LinkKey:
    tail, arrow, head = text.partition("->")
    if not (tail and arrow and head):
        raise typer.BadParameter(f"{text!r} is not of the form A->B", param_hint="A->B")
    return LinkKey(tail, head)


async def _nothing(_: RouteClient) -> None:
    """Query only the path server's state."""


def _show_explanation(explanation: Explanation, now_ns: int) -> None:
    screen = plain_or_terminal()
    age = seconds(explanation.figures_age_ns)
    screen.print(explanation.reason, highlight=False, soft_wrap=True)
    screen.print(f"figures are {age} s old", highlight=False, soft_wrap=True)
    label = f"{age} s ago" if explanation.feed_is_silent else "now"
    rows = [_row(figures, _label(explanation, figures, label)) for figures in explanation.candidates]
    screen.print(table_of(("", "path", "delay ms", "free Mbit/s"), rows, title=flow_name(explanation.flow)))
    for move in explanation.moves:
        when = utc(move.time_ns).isoformat(timespec="milliseconds")
        ago = seconds(now_ns - move.time_ns)
        screen.print(f"moved at {when}, {ago} s ago: {move.reason}", highlight=False, soft_wrap=True)
    screen.print(_record_table(explanation, now_ns))


def _label(explanation: Explanation, figures: PathFigures, now: str) -> str:
    """Return notes on a candidate: the flow's current path, the path it is pinned to."""
    at = now if figures.switches == explanation.present.switches else ""
    return f"{at} pinned".strip() if figures.switches == explanation.pinned else at


def _record_table(explanation: Explanation, now_ns: int) -> Table:
    columns = ("received", "packet", "hop", "switch", "to", "latency us", "queue", "age s")
    rows = (
        (
            *(utc(row.received_ns), f"{row.packet_id:x}"[-6:], row.hop_index, row.switch, row.next_hop),
            *(_us(row.hop_latency_ns), row.queue_occupancy_frames, seconds(now_ns - row.received_ns)),
        )
        for row in explanation.records
    )
    return table_of(columns, rows, title="newest records")


def _us(time_ns: int | None) -> str | None:
    return None if time_ns is None else f"{time_ns / 1000:.0f}"


def _ns(text: str | None, option: str) -> int | None:
    """Parse a time to nanoseconds since 1970; without an offset it is UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time such as {_A_TIME}", param_hint=option) from error
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    # In integers: a float of today's seconds is exact to some 240 ns only.
    return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1000


def _selected(query: HistoryQuery, answer: History) -> list[_Decided]:
    """Return the newest moves and weight changes, and rounds of engineering unless a host is selected."""
    chosen: list[_Decided] = [*answer.decisions, *answer.rebalances]
    if query.src is None and query.dst is None:
        chosen += [
            engineering
            for engineering in answer.rounds
            if (query.start_ns or 0) <= engineering.time_ns
            and (query.end_ns is None or engineering.time_ns < query.end_ns)
        ]
    return sorted(chosen, key=attrgetter("time_ns"))[-query.limit :]


def _history_cells(decided: _Decided) -> Cells:
    from controller.network.paths.balancing.values import Rebalance  # noqa: PLC0415
    from controller.network.paths.deciding.decide import Decision  # noqa: PLC0415

    if isinstance(decided, Decision):
        return (utc(decided.time_ns), flow_name(decided.flow), decided.new_path, decided.reason)
    if isinstance(decided, Rebalance):
        ways = tuple(f"{peer} ({weight})" for peer, weight in decided.new_weights)
        return (utc(decided.time_ns), f"all to {decided.destination} at {decided.switch}", ways, decided.reason)
    return (utc(decided.time_ns), "all to " + " ".join(decided.destinations), "weighted", decided.reason)


def _row(figures: PathFigures, label: str) -> tuple[str, str, str, str]:
    notes = (("dead", figures.dead_link), ("drained", figures.drained_link))
    path = " ".join(figures.switches) + "".join(f" ({state}: {link})" for state, link in notes if link is not None)
    return (label, path, f"{figures.delay_ns / 1e6:.3f}", f"{figures.bottleneck_bps / 1e6:.3f}")
