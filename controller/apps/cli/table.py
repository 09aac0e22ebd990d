"""The commands of `millrace` by name, and the help that lists them; imports nothing, to keep the help fast."""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """A command."""

    name: str
    place: str
    """`module:name` of a function, or of a Typer that contains the command or group."""
    help: str


ABOUT: Final = (
    "In-network computing: P4 switches, in-band network telemetry, traffic engineering, in-network aggregation."
)
COMMANDS: Final = {
    "Try it": (
        Row("demo", "controller.apps.cli.demo:demo", "Run the whole control loop: congest a link, watch traffic move."),
        Row(
            "doctor",
            "controller.apps.cli.doctor.command:doctor",
            "Show what this machine can do, and how to get the rest.",
        ),
        Row("help", "controller.apps.cli.help:help_of", "Explain a command: `millrace help task submit`."),
        Row("version", "controller.apps.cli.version:version", "Print the version."),
    ),
    "Operate a fabric": (
        Row("up", "controller.apps.cli.up:up", "Start a fabric and all daemons under one supervisor."),
        Row(
            "status", "controller.apps.cli.up:status", "Show the state of every daemon; exit 1 unless all are healthy."
        ),
        Row(
            "view",
            "controller.apps.cli.view:view",
            "Open the operators' page: fabric, moves, workloads.",
        ),
        Row("logs", "controller.apps.cli.up:logs", "Show the daemons' logs in order of time."),
        Row(
            "restart",
            "controller.apps.cli.up:restart",
            "Restart one daemon of `millrace up`, and wait until it is ready.",
        ),
        Row("down", "controller.apps.cli.up:down", "Stop everything that `millrace up` started."),
        Row(
            "fabric",
            "controller.apps.cli.network.fabric:fabric",
            "Bring up topologies in the kernel and keep them running.",
        ),
        Row("topology", "controller.apps.cli.network.topology:topology", "Check and show topologies."),
        Row("clean", "controller.apps.cli.clean:clean", "Remove remains of a killed kernel fabric or benchmark."),
        Row("collector", "controller.apps.cli.daemons:collector", "Run the collector of telemetry reports."),
        Row(
            "controller",
            "controller.apps.cli.daemons:controller",
            "Run the controller, which writes the switches' tables.",
        ),
        Row("paths", "controller.apps.cli.network.paths:paths", "Run the path server, or query a running one."),
        Row(
            "telemetry", "controller.apps.cli.telemetry.commands:telemetry", "Query a running collector or its history."
        ),
        Row("alto", "controller.apps.cli.network.alto:alto", "Serve the cost map by ALTO (RFC 7285, RFC 9439)."),
        Row(
            "ports", "controller.apps.cli.network.ports:ports", "Show and set a switch's ports and BFD sessions (gNMI)."
        ),
        Row(
            "config", "controller.apps.cli.config:config", "Show and check daemons' settings; print their JSON schema."
        ),
        Row("certs", "controller.apps.cli.certs:certs", "Make an authority, certificates and tokens for TLS."),
    ),
    "Run a cluster": (
        Row("api", "controller.apps.cli.cluster.api:api", "Run the API server; manage its tokens."),
        Row(
            "get",
            "controller.apps.cli.cluster.resources:get",
            "Show resources as a table, CSV or JSON; --watch follows them.",
        ),
        Row("describe", "controller.apps.cli.cluster.resources:describe", "Show one resource in full."),
        Row("delete", "controller.apps.cli.cluster.resources:delete", "Delete a resource."),
        Row("project", "controller.apps.cli.cluster.project:project", "Manage projects: quotas and weights."),
        Row("pod", "controller.apps.cli.pod.commands:pod", "Run containers: manifests, placement, logs, commands."),
        Row("task", "controller.apps.cli.task.commands:task", "Run programs at compute centres."),
        Row(
            "scheduler",
            "controller.apps.cli.cluster.scheduler:scheduler",
            "Run the scheduler; explain and simulate placements.",
        ),
        Row(
            "placement",
            "controller.apps.cli.cluster.placement:placement",
            "Run the workload controller, which creates groups' pods.",
        ),
        Row("node", "controller.apps.cli.cluster.node:node", "Run a node's container manager."),
        Row("centre", "controller.apps.cli.cluster.centre:centre", "Run a compute centre's agent."),
        Row(
            "devices",
            "controller.apps.cli.cluster.devices:devices",
            "Show this machine's processors, memory and devices.",
        ),
        Row(
            "probe",
            "controller.apps.cli.probe.commands:probe",
            "Measure what compute centres deliver: kernels, tasks, results.",
        ),
        Row(
            "accel",
            "controller.apps.cli.accel.commands:accel",
            "Choose CPU, accelerator or switch for each operator of a job.",
        ),
        Row(
            "balance",
            "controller.apps.cli.balance.commands:balance",
            "Balance transfer and compute load by feedback control.",
        ),
        Row(
            "memory",
            "controller.apps.cli.memory.commands:memory",
            "Pool the memory of machines: tiers, moves of blocks, requests.",
        ),
    ),
    "Bring your own P4 program": (
        Row(
            "switch",
            "controller.apps.cli.daemons:switch_command",
            "Run a switch, or inspect a running one (`switch show`).",
        ),
        Row("table", "controller.apps.cli.state.tables:table", "List, read and write tables of a running switch."),
        Row(
            "counter", "controller.apps.cli.state.arrays:counter", "List, read and write counters of a running switch."
        ),
        Row(
            "register",
            "controller.apps.cli.state.arrays:register",
            "List, read and write registers of a running switch.",
        ),
        Row("trace", "controller.apps.cli.network.trace:trace", "Explain what a program does with a packet."),
        Row("stf", "controller.apps.cli.network.stf:stf", "Run a test of p4c's simple test framework."),
        Row(
            "install-shims",
            "controller.apps.cli.install_shims:install_shims",
            "Write simple_switch_grpc and simple_switch that start Millrace.",
        ),
    ),
    "Train over it": (
        Row("job", "controller.apps.cli.network.job:job", "Manage jobs of in-network aggregation."),
        Row(
            "store",
            "controller.apps.cli.network.store:store",
            "Serve, read and write named content cached in switches.",
        ),
    ),
    "Use the devices": (
        Row(
            "nic",
            "controller.apps.cli.network.nic:nic",
            "Inspect network devices; show and set how nodes poll their queues.",
        ),
    ),
}
"""Commands by reader, as docs/index.md has the pages."""

_OPTIONS: Final = {
    "--log-level LEVEL": "Minimum log level of daemons: debug, info (default), warning, error; or MILLRACE_LOG_LEVEL.",
    "--log-format FORMAT": "Log format of daemons: text (default), json, plain; or MILLRACE_LOG_FORMAT.",
    "-q, --quiet": "Print no ready line and no progress; log warnings and errors only.",
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Print completion for the current shell.",
    "--version": "Print the version.",
    "--help": "Print this message.",
}


def help_text() -> str:
    """Return the text of `millrace --help`."""
    sections = {heading: {row.name: row.help for row in rows} for heading, rows in COMMANDS.items()}
    sections["Options"] = _OPTIONS
    lines = ["Usage: millrace [OPTIONS] COMMAND [ARGS]...", "", ABOUT]
    for heading, entries in sections.items():
        width = max(15, *map(len, entries))
        lines += ["", f"{heading}:", *(f"  {name:{width}}  {text}" for name, text in entries.items())]
    return "\n".join([*lines, "", "`millrace help COMMAND` explains a command."])
