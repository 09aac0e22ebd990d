"""`millrace telemetry probe`: a host's probe packets, or the plan that says which host sends to which."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from controller.apps.cli.amounts import in_milliseconds
from controller.common.errors import ControllerError
from dataplane.clock import NS_PER_MS


def probe(
    topology_spec: Annotated[str, typer.Option("--topology", metavar="FILE", help="A file, a name, or a family.")],
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Send this host's probes from its machine; default: print the plan."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="UDP destination port, as in the watch rule.")] = 9,
    interval_ms: Annotated[
        int,
        typer.Option("--interval", "--interval-ms", parser=in_milliseconds(1), help="Between probes to a host."),
    ] = 10,
) -> None:
    """Probe every link in both directions until Ctrl-C, so that links without traffic are measured."""
    from controller.network.telemetry_probing.plan import plan_probes  # noqa: PLC0415
    from controller.network.telemetry_probing.sender import ProbeSender, ProbeSettings  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415

    topology = load_topology(topology_spec)
    plan = plan_probes(topology)
    if host is None:
        for src, dst in plan.pairs:
            typer.echo(f"{src} {dst}")
        for link in plan.uncovered:
            typer.echo(f"no base path crosses {link}", err=True)
        return
    if host not in topology.host:
        raise ControllerError(f"topology {topology.name} has no host {host!r}")
    targets = [topology.host[dst].ipv4 for src, dst in plan.pairs if src == host]
    settings = ProbeSettings(udp_port=port, interval_ns=interval_ms * NS_PER_MS)
    hosts = "host" if len(targets) == 1 else "hosts"
    typer.echo(f"millrace telemetry probe: to {len(targets)} other {hosts}, every {interval_ms} ms", err=True)
    if targets:
        with suppress(KeyboardInterrupt):
            asyncio.run(ProbeSender(topology.host[host].ipv4, targets, settings).run())
