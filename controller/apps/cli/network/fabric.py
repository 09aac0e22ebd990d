"""`millrace fabric`: long-running topologies."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.common import SettingsFile, log_to_stderr, ready, say, working
from controller.apps.cli.shared.output import Cells, Format, FormatOption
from controller.apps.cli.shared.output import show as show_rows

if TYPE_CHECKING:
    from controller.apps.up.command import FabricDaemons
    from dataplane.fabric.kernel.manifest import Manifest
    from dataplane.topology.values import Topology

fabric = typer.Typer(
    name="fabric", help="Bring up topologies in the kernel and keep them running.", no_args_is_help=True
)

_POLL_S: Final = 0.1


class SwitchOption(StrEnum):
    """Switch implementation for a kernel fabric."""

    MILLRACE = "millrace"
    BMV2 = "bmv2"


@fabric.command()
def up(
    topology: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="A file, a name, or a family.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the fabric and its namespaces; default: the topology's.")
    ] = None,
    switch: Annotated[SwitchOption, typer.Option(help="Millrace's, or simple_switch_grpc.")] = SwitchOption.MILLRACE,
    daemons: Annotated[
        bool, typer.Option("--daemons", help="Run collector, path server, controller and the cluster's daemons, too.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when everything is ready.")] = False,
) -> None:
    """Run a topology in the kernel (root) until Ctrl-C, SIGTERM or `down`: namespaces, cables, switch processes.

    Switches start without a program; a controller installs it, that of --daemons or another.
    """
    from controller.apps.up import command  # noqa: PLC0415
    from dataplane.fabric.kernel.fabric import KernelSettings, Target, require_root  # noqa: PLC0415
    from dataplane.fabric.live import standing  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415
    from dataplane.topology.schema import is_name  # noqa: PLC0415

    require_root()
    network = load_topology(topology)
    name = network.name if name is None else name
    if not is_name(name):
        raise typer.BadParameter(f"{name!r} is not 1 to 32 of a-z, 0-9 and -", param_hint="--name")
    addresses = _address(name, "{name}")
    beside = command.FabricDaemons.of(name, topology, addresses) if daemons else None
    counts = f"{len(network.switches)} switches and {len(network.hosts)} hosts"
    say("fabric")(f"{name}: starting {counts}, which takes up to a minute on a busy machine")
    if detach:
        words = ("up", topology, "--name", name, "--switch", switch, *(["--daemons"] if daemons else []))
        _print_ready(_started(words, name), network, beside)
        return
    log_to_stderr("fabric")
    standing.run(
        network,
        KernelSettings(target=Target(switch), name=name),
        lambda manifest: _print_ready(manifest, network, beside),
        reports=None if beside is None else beside.reports,
        beside=None if beside is None else lambda: command.beside_fabric(beside, say("fabric")),
    )


@fabric.command()
def down(name: Annotated[str | None, typer.Argument(help="Default: the only one.")] = None) -> None:
    """Take down a fabric started by `up`, or its remains (root)."""
    from dataplane.fabric.live import standing  # noqa: PLC0415

    fabrics = [manifest for manifest in _fabrics() if manifest.is_named]
    fabric_down = standing.only(fabrics) if name is None else standing.named(name)
    with working(f"fabric {fabric_down.fabric_id}: switches end, namespaces are removed"):
        standing.end(fabric_down)


@fabric.command("list")
def list_fabrics(
    name: Annotated[str | None, typer.Argument(help="Show this fabric's nodes; default: all fabrics.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """List the kernel fabrics of this machine, or the nodes of one with namespaces and addresses (root)."""
    from dataplane.fabric.live import standing  # noqa: PLC0415

    fabrics = _fabrics()
    if name is None:
        columns = ("fabric", "topology", "state", "pid", "switches", "hosts", "namespaces")
        show_rows(columns, map(_fabric_cells, fabrics), form)
    else:
        show_rows(("node", "kind", "namespace", "address"), _node_rows(standing.named(name)), form)


@fabric.command("exec", context_settings={"allow_interspersed_args": False})
def exec_(
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host, or a switch.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...")],
    name: Annotated[str | None, typer.Option("--fabric", metavar="NAME", help="Default: the only one.")] = None,
) -> None:
    """Run a command in a host's namespace (root) and return its exit status. Put options before the host's name."""
    from dataplane.fabric.live import standing  # noqa: PLC0415

    fabrics = [manifest for manifest in _fabrics() if manifest.owner.is_alive()]
    target = standing.only(fabrics) if name is None else standing.named(name)
    standing.enter(target, host, command[1:] if command[0] == "--" else command)


@fabric.command()
def serve(settings: SettingsFile) -> None:
    """Run a topology's switches, cables and hosts until SIGTERM; reports go to a collector that runs elsewhere."""
    from dataplane.fabric.live import process  # noqa: PLC0415

    log_to_stderr("fabric")
    # A line for each port that a controller sets says nothing where one process has all switches.
    logging.getLogger("millrace.switch").setLevel(logging.WARNING)
    process.run(settings, say("fabric"))


def _fabrics() -> list[Manifest]:
    """Return all fabrics of this machine; raise FabricError without root, which owns them."""
    from dataplane.fabric.kernel.fabric import require_root  # noqa: PLC0415
    from dataplane.fabric.kernel.manifest import find_fabrics  # noqa: PLC0415

    require_root()
    return find_fabrics(on_problem=lambda problem: typer.echo(f"millrace: {problem}", err=True))


def _started(words: Sequence[str], name: str) -> Manifest:
    """Start a fabric in its own session, and return it when it is ready; raise FabricError with its last output."""
    from dataplane.errors import FabricError  # noqa: PLC0415
    from dataplane.fabric.kernel.manifest import RUN_ROOT  # noqa: PLC0415
    from dataplane.fabric.live import standing  # noqa: PLC0415
    from dataplane.local.endings import read_lines, telling_line, why_ended  # noqa: PLC0415

    # Beside the fabrics' folders, so that it can be renamed into one that does not exist yet.
    with tempfile.NamedTemporaryFile(dir=RUN_ROOT.parent, prefix="millrace-fabric-", delete=False) as log:
        path = Path(log.name)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, "-m", "controller.apps.cli", "fabric", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        with working(f"fabric {name}: namespaces, cables and switches start"):
            while not standing.is_ready(name, process.pid):
                if process.poll() is not None:
                    lines = read_lines(path)
                    raise FabricError(telling_line(lines) or why_ended(process.returncode, lines))
                time.sleep(_POLL_S)
        path.replace(RUN_ROOT / name / "fabric.log")
    except BaseException:
        process.terminate()
        process.wait()
        path.unlink(missing_ok=True)
        raise
    return standing.named(name)


def _print_ready(manifest: Manifest, network: Topology, beside: FabricDaemons | None) -> None:
    """Print the ready line, and the commands to go on with."""
    line = f"{manifest.fabric_id}: {len(manifest.switches)} switches, {len(manifest.hosts)} hosts"
    ready("fabric")(
        f"{line}; namespaces {_namespace(manifest, 'NODE')}, P4Runtime {_address(manifest.fabric_id, 'SWITCH')}"
    )
    for step in next_steps(network, manifest.fabric_id, beside):
        say("fabric")(step)


def next_steps(network: Topology, name: str, beside: FabricDaemons | None = None) -> list[str]:
    """Return what to run next in a fabric: the daemons, each where it works, and a command in a host."""
    inside = f"millrace fabric exec --fabric {name}"
    steps = [f"controller: `millrace controller serve -s FILE` with switches: {_address(name, '{name}')}"]
    if beside is not None:
        state = beside.folder.path
        steps = [f"daemons: `millrace status --state {state}`; settings: {beside.folder.settings}"]
    elif network.collector is not None:
        host = network.collector.host  # switches send their reports there
        steps.insert(0, f"collector, in its host: `{inside} {host} -- millrace collector serve -s FILE`")
    if len(network.hosts) > 1:
        first, last = network.hosts[0], network.hosts[-1]
        steps.append(f"traffic: `{inside} {first.name} -- ping {last.ipv4}`")
    return [*steps, f"end: `millrace fabric down {name}`"]


def _namespace(manifest: Manifest, node: str) -> str:
    from dataplane.fabric.kernel.manifest import namespace_of  # noqa: PLC0415

    return namespace_of(manifest.fabric_id, node)


def _address(fabric_id: str, switch: str) -> str:
    from dataplane.fabric.kernel.manifest import RUN_ROOT  # noqa: PLC0415

    return f"unix:{RUN_ROOT / fabric_id / switch}.sock"


def _fabric_cells(manifest: Manifest) -> Cells:
    state = "up" if manifest.owner.is_alive() else "left over"
    counts = (len(manifest.switches), len(manifest.hosts))
    return manifest.fabric_id, manifest.topology, state, manifest.owner.pid, *counts, _namespace(manifest, "NODE")


def _node_rows(manifest: Manifest) -> list[Cells]:
    switches = [
        (name, "switch", _namespace(manifest, name), _address(manifest.fabric_id, name)) for name in manifest.switches
    ]
    return [
        *switches,
        *((name, "host", _namespace(manifest, name), address) for name, address in manifest.hosts.items()),
    ]
