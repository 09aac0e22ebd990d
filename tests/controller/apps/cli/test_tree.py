"""Rules for all commands: reading commands offer table, CSV and JSON; numbers may carry units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from controller.apps.cli.app import app

WITHOUT_FORMAT = {
    "api token create": "prints a secret alone, for a file",
    "certs authority": "makes files",
    "certs issue": "makes files",
    "certs renew": "makes files",
    "certs token": "prints a secret alone, for a file",
    "clean": "removes; says what",
    "config check": "says that a file is right",
    "config schema": "is JSON",
    "delete": "changes something",
    "demo int": "runs, and draws a packet",
    "demo store": "runs, and tells what happens",
    "demo training": "runs, and tells what happens",
    "down": "stops daemons",
    "fabric down": "stops a fabric",
    "fabric exec": "shows what another command says",
    "fabric up": "runs until it is stopped",
    "help": "is text",
    "install-shims": "makes files",
    "logs": "shows the lines of logs, which daemons write as JSON if they are told to",
    "memory pool get": "prints bytes",
    "paths link": "changes something",
    "pod exec": "shows what another command says",
    "pod logs": "shows what a container has written",
    "pod schema": "is JSON",
    "restart": "restarts a daemon; says when it is ready",
    "stf": "says that a test has passed, or the first differences",
    "store get": "prints bytes",
    "switch": "a daemon with a parser of its own, bmv2's; `switch show` has --format",
    "task logs": "shows what a task has written",
    "telemetry probe": "sends packets until it is stopped",
    "topology import": "makes a file",
    "up": "runs until it is stopped",
    "version": "prints two words",
    "view": "prints an address, or serves until it is stopped",
}
"""Commands without rows or values, with the reason, in addition to those recognised by name."""
CHANGES = {"add", "apply", "cancel", "change", "delete", "drive", "end", "put", "remove", "report", "revoke", "set"}
CHANGES |= {"acknowledge", "write", "submit", "build", "release"}
DAEMONS = {"collector", "controller", "extend", "reflect", "serve", "worker"}


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each leaf command by its words."""
    command = get_command(app) if command is None else command
    below = getattr(command, "commands", None)
    if below is None:
        yield " ".join(path), command
        return
    for name, subcommand in below.items():
        yield from commands(subcommand, (*path, name))


TREE = dict(commands())


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts}


@pytest.mark.parametrize("name", TREE)
def test_a_command_that_reads_has_formats(name: str) -> None:
    last = name.rsplit(maxsplit=1)[-1]
    reads = name not in WITHOUT_FORMAT and last not in CHANGES | DAEMONS
    assert ("--format" in options_of(TREE[name])) is reads, name


def test_the_exceptions_are_commands() -> None:
    assert WITHOUT_FORMAT.keys() <= TREE.keys()


@pytest.mark.parametrize("name", TREE)
def test_numbers_with_a_unit_are_read_with_it(name: str) -> None:
    """Options whose name or help names a unit are parsed by cli/shared/amounts.py, not as bare numbers."""
    unit = re.compile(r"\b(?:seconds|milliseconds|hours|days|bytes|[kMGT]B|ms|GB)\b|-(?:s|ms|ns|bytes|mb)$")
    for parameter in TREE[name].params:
        described = parameter.type_descriptor
        says = [*parameter.opts, str(getattr(parameter, "help", ""))]
        if described.annotation in {int, float} and described.parameter_info.parser is None:
            assert not any(unit.search(text) for text in says), parameter.opts


def test_every_command_has_a_sentence_of_help() -> None:
    assert [name for name, command in TREE.items() if not str(command.help or "").rstrip().endswith(".")] == []
