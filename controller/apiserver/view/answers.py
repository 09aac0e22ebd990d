"""Exact figures of what is selected in the page: a link, the flows, why a flow is where it is."""

from __future__ import annotations

from typing import Any, Final

from collectors.values import LINK_FIGURES, FlowKey, FlowMove, LinkState, PathState
from controller.apiserver.view.state import MOST_FLOWS, NetworkView, flow_text, move_value, spec_of_move
from controller.common.errors import NotFoundError
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.graph import PathFigures
from controller.network.paths.records.values import Explanation
from controller.network.paths.service.move_reports import move_of
from dataplane.topology.values import LinkKey

_MOST_OF_LINK: Final = 200
_UNITS: Final = (("_ns", "ns"), ("_bps", "bit/s"), ("_frames", "frames"))


def link_of(view: NetworkView, src: str, dst: str) -> LinkKey:
    """Return a link between switches; raise NotFoundError."""
    key = LinkKey(src, dst)
    if key not in view.index:
        raise NotFoundError(f"topology {view.topology.name} has no link {key} between switches")
    return key


def link_answer(view: NetworkView, key: LinkKey) -> dict[str, Any]:
    """Return a link's figures and the flows on it."""
    link = view.topology.directed_links[key]
    snapshot = view.snapshot
    state = None if snapshot is None else snapshot.links.get(key)
    status = None if snapshot is None else snapshot.statuses.get(key)
    paths = {} if snapshot is None else snapshot.paths
    on_it = [(flow, path) for flow, path in paths.items() if _crosses(path, key)]
    on_it.sort(key=lambda pair: pair[1].rate_bps or 0, reverse=True)
    figures = [_figure("propagation", link.delay_ns, "ns")]
    return {
        "link": {"a": key.src, "b": key.dst},
        "at_ns": view.time_ns,
        "figures": figures + ([] if state is None else _figures(state)),
        "source": None if state is None else state.source.value,
        "status": None
        if status is None
        else {"condition": status.condition.value, "cause": status.cause, "age_ns": status.age_ns},
        "flows": [_flow(view, flow, path) for flow, path in on_it[:_MOST_OF_LINK]],
        "flows_of": len(on_it),
    }


def flows_answer(view: NetworkView, limit: int) -> dict[str, Any]:
    """Return the flows of the highest rate, and how many there are."""
    snapshot = view.snapshot
    paths = {} if snapshot is None else snapshot.paths
    busiest = sorted(paths.items(), key=lambda pair: pair[1].rate_bps or 0, reverse=True)
    return {
        "at_ns": view.time_ns,
        "flows": [_flow(view, flow, path) for flow, path in busiest[: min(limit, MOST_FLOWS)]],
        "of": len(paths),
    }


def why_answer(explanation: Explanation) -> dict[str, Any]:
    """Return why a flow is where it is: the words, and the alternatives with their figures."""
    flow, present = explanation.flow, explanation.present
    words = [explanation.reason]
    if explanation.feed_is_silent:
        words.append("the collector is silent: these are the last known figures, and nothing is decided by them")
    words += [f"earlier move: {move.reason}" for move in explanation.moves[1:]]
    return {
        "flow": _spec(flow),
        "text": flow_text(flow.src_host, flow.dst_host, flow.src_port, flow.dst_port),
        "path": list(present.switches),
        "pinned": list(explanation.pinned) or None,
        "rate_bps": explanation.rate_bps,
        "figures_age_ns": explanation.figures_age_ns,
        "words": words,
        "alternatives": [_alternative(figures, present) for figures in explanation.candidates],
        "decision": move_value(move_of(explanation.moves[0])) if explanation.moves else None,
    }


def decided_answer(move: FlowMove) -> dict[str, Any]:
    """Return why a flow was moved, where no path server is asked: its newest move, without alternatives."""
    return {
        "flow": _spec(spec_of_move(move)),
        "text": flow_text(move.src_host, move.dst_host, move.src_port, move.dst_port),
        "path": list(move.new_path),
        "pinned": None,
        "rate_bps": None,
        "figures_age_ns": None,
        "words": [move.reason],
        "alternatives": [],
        "decision": move_value(move),
    }


def unmanaged_answer(view: NetworkView, flow: FlowSpec, problem: str) -> dict[str, Any]:
    """Return what is known of a flow that the path server does not explain: the path that telemetry shows."""
    paths = {} if view.snapshot is None else view.snapshot.paths
    hosts = view.topology.host_by_address

    def is_it(key: FlowKey) -> bool:
        ends = [host.name for address in (key.src, key.dst) if (host := hosts.get(address)) is not None]
        ports = (
            (key.protocol, flow.protocol),
            (key.src_port, flow.src_port),
            (key.dst_port, flow.dst_port),
        )
        return ends == [flow.src_host, flow.dst_host] and all(asked in {None, seen} for seen, asked in ports)

    seen = next((path for key, path in paths.items() if is_it(key)), None)
    return {
        "flow": _spec(flow),
        "text": flow_text(flow.src_host, flow.dst_host, flow.src_port, flow.dst_port),
        "path": None if seen is None else list(seen.switches),
        "pinned": None,
        "rate_bps": None if seen is None else seen.rate_bps,
        "figures_age_ns": None,
        "words": [problem],
        "alternatives": [],
        "decision": None,
    }


def spec_of(view: NetworkView, flow: FlowSpec) -> FlowSpec:
    """Return a flow by its hosts' names, where it has their addresses; raise NotFoundError."""
    return FlowSpec(_host(view, flow.src_host), _host(view, flow.dst_host), flow.protocol, flow.src_port, flow.dst_port)


def _host(view: NetworkView, name: str) -> str:
    if name in view.topology.host:
        return name
    of = {str(address): host.name for address, host in view.topology.host_by_address.items()}
    if name not in of:
        raise NotFoundError(f"topology {view.topology.name} has no host {name[:80]}")
    return of[name]


def _alternative(figures: PathFigures, present: PathFigures) -> dict[str, Any]:
    if figures.dead_link is not None:
        verdict = f"dead: {figures.dead_link}"
    elif figures.drained_link is not None:
        verdict = f"drained: {figures.drained_link}"
    elif figures.switches == present.switches:
        verdict = "the present path"
    elif figures.crowded_link is not None:
        verdict = f"no room on {figures.crowded_link}"
    else:
        verdict = "shorter" if figures.cost_ns < present.cost_ns else "not shorter"
    return {
        "path": list(figures.switches),
        "delay_ns": figures.delay_ns,
        "delay_after_ns": figures.cost_ns,
        "bottleneck_bps": figures.bottleneck_bps,
        "margin": None if not figures.usable else 1 - figures.cost_ns / max(1, present.cost_ns),
        "verdict": verdict,
    }


def _spec(flow: FlowSpec) -> dict[str, Any]:
    return {
        "src": flow.src_host,
        "dst": flow.dst_host,
        "protocol": flow.protocol,
        "src_port": flow.src_port,
        "dst_port": flow.dst_port,
    }


def _flow(view: NetworkView, flow: FlowKey, path: PathState) -> dict[str, Any]:
    hosts = view.topology.host_by_address
    src, dst = hosts.get(flow.src), hosts.get(flow.dst)
    names = str(flow.src) if src is None else src.name, str(flow.dst) if dst is None else dst.name
    return {
        "src": names[0],
        "dst": names[1],
        "protocol": flow.protocol,
        "src_port": flow.src_port,
        "dst_port": flow.dst_port,
        "text": flow_text(*names, flow.src_port, flow.dst_port),
        "path": list(path.switches),
        "rate_bps": path.rate_bps,
        "delay_ns": path.delay_ns,
        "loss": path.loss,
        "age_ns": path.age_ns,
    }


def _crosses(path: PathState, key: LinkKey) -> bool:
    switches = path.switches
    return any(switches[n] == key.src and switches[n + 1] == key.dst for n in range(len(switches) - 1))


def _figures(state: LinkState) -> list[dict[str, Any]]:
    values = ((name, figure, getattr(state, name)) for name, figure in LINK_FIGURES.items())
    return [
        _figure(figure.uses.meaning, value, _unit(name))
        for name, figure, value in values
        if value is not None and isinstance(value, int | float)
    ]


def _figure(name: str, value: float, unit: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit}


def _unit(name: str) -> str:
    if name in {"utilisation", "loss", "newest_utilisation"}:
        return "share"
    return next((unit for ending, unit in _UNITS if name.endswith(ending)), "")
