"""The table of commands that shells complete from: `make tables` writes it from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from typer.main import get_command

from controller.apiserver.resources import KINDS
from controller.apps.cli.app import app
from controller.apps.cli.completion.sources import SOURCES
from controller.apps.cli.config import SETTINGS
from controller.apps.cli.state.switch import switch_show

_SPECS: Final = "topology (check|switches|hosts|show)"
_RULES: Final = (
    ("get|describe|delete", "kind", ",".join(kind.plural for kind in KINDS)),
    ("get|describe|delete", "name", "@objects"),
    ("config .*", "daemon", ",".join(SETTINGS)),
    ("logs", "name", "@daemons"),
    (_SPECS, "spec", "@topologies"),
    ("(?!telemetry probe).*", "topology|topology_spec", "@topologies"),
    ("fabric (down|list|exec)", "name", "@fabrics"),
    ("fabric exec", "host", "@fabric-hosts"),
    ("paths .*|demo .*", "src|dst", "@hosts"),
    ("certs .*|job .*|telemetry probe", "host", "@hosts"),
    ("probe hours", "source", "@hosts"),
    ("demo store", "producer", "@hosts"),
    ("paths set", "path", "@switches"),
    ("paths .*", "link", "@links"),
    ("paths (drain|undrain)", "element", "@links"),
    ("(ports|table|counter|register|switch) .*", "address", "@switch-addresses"),
    ("store (names|counters)", "switch", "@switch-addresses"),
    ("nic .*", "interface", "@interfaces"),
    ("nic (list|mode)", "node", "@nodes"),
    ("task (show|logs|explain|why|cancel|delete)", "names?", "@tasks"),
    ("task submit", "after", "@tasks"),
    ("pod (show|explain|why|logs|exec|delete)", "names?", "@pods"),
    ("scheduler explain", "pod", "@pods"),
    ("pod list", "node", "@nodes"),
    ("pod list", "group", "@podgroups"),
    ("centre show", "name", "@centres"),
    ("probe hours", "centre", "@centres"),
    ("(task|probe|api) .*", "centre|centres", "@centres"),
    ("probe (send|efficiency|results|hours)", "probe", "@probetasks"),
    ("probe kernels (show|run|delete)", "name", "@probekernels"),
    ("probe policy (show|delete)", "name", "@scoringpolicies"),
    ("project set", "name", "@projects"),
    ("balance (status|set|report|history)", "pool", "@unitpools"),
    ("api token create|balance set", "node", "@nodes"),
)
"""Commands and parameters, both as patterns, whose values are looked up; the first that fits counts."""
_CHOICES: Final = re.compile(r"[a-z][a-z-]*(\|[a-z][a-z-]*)+")


def completion_table() -> str:
    """Return the text of controller/apps/cli/completion/commands.txt."""
    return "".join(f"{line}\n" for line in _lines(get_command(app), ()))


def unused_rules() -> list[tuple[str, str, str]]:
    """Return the rules without a parameter, and with a source that is none."""
    commands = _commands(get_command(app), ())
    met = {_rule_of(" ".join(path), parameter) for path, command in commands for parameter in command.params}
    return [rule for rule in _RULES if rule not in met or (rule[2].startswith("@") and rule[2][1:] not in SOURCES)]


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, subcommand in getattr(command, "commands", {}).items():
        if not subcommand.hidden:
            yield from _commands(subcommand, (*path, name))


def _lines(root: Any, path: tuple[str, ...]) -> Iterator[str]:
    yield from _lines_of_switch()
    for words, command in _commands(root, path):
        shown = (parameter for parameter in command.params if not getattr(parameter, "hidden", False))
        parameters = (_written(" ".join(words), parameter) for parameter in shown)
        about = (command.help or "").strip().partition("\n")[0]
        yield "\t".join([" ".join(words), about, *parameters])


def _lines_of_switch() -> Iterator[str]:
    """Yield the commands that `millrace switch` reads itself, beside the options of bmv2's."""
    yield "switch serve\tRun a switch."
    show = get_command(switch_show)
    parameters = (_written("switch show", parameter) for parameter in show.params)
    yield "\t".join(["switch show", str(show.help), *parameters])


def _written(command: str, parameter: Any) -> str:
    is_option = parameter.param_type_name == "option"
    names = sorted(parameter.opts, key=lambda name: not name.startswith("--")) if is_option else [parameter.name]
    if is_option and parameter.is_flag:
        return ",".join([*names, *parameter.secondary_opts])
    repeats = "*" if not is_option and parameter.nargs != 1 else ""
    return f"{','.join(names)}{repeats}={_values(command, parameter)}"


def _values(command: str, parameter: Any) -> str:
    rule = _rule_of(command, parameter)
    if rule is not None:
        return rule[2]
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ",".join(str(member.value) for member in annotation)
    metavar = parameter.metavar or ""
    return metavar.replace("|", ",") if _CHOICES.fullmatch(metavar) else ""


def _rule_of(command: str, parameter: Any) -> tuple[str, str, str] | None:
    fits = (rule for rule in _RULES if re.fullmatch(rule[0], command) and re.fullmatch(rule[1], parameter.name or ""))
    return next(fits, None)
