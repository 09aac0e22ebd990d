"""Calls of every command with hostile values: malformed numbers, endless files, raw bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tests.controller.apps.cli.test_tree import TREE

NUMBERS = ("nan", "inf", "-inf", "-1", "0", "1e308", "1e-400", "9" * 40, "0x10", "1_000", "\u0663")
WORDS = (
    "",
    " ",
    "-",
    "..",
    "=",
    ":",
    ",",
    "[",
    "a=b=c",
    "1:2:3",
    "x" * 100_000,
    "\udcff\udcfe",
    "\\0",
    "\x1b[2J",
    "\n",
)
FILES = ("/dev/null", "/dev/zero", "/dev/full", "folder", "none/here", "pipe", "bytes", "empty", "large", "deep.json")
"""Names of files in the sandbox's folder, and of devices."""
HOSTILE = (*NUMBERS, *WORDS, *FILES)

DANGEROUS = {
    "clean": "removes what others have made on this machine",
    "down": "stops what others have started",
    "fabric down": "removes what others have made on this machine",
}
"""Skipped commands, with the reason."""
STAYS = {"collector", "controller", "extend", "serve", "worker", "watch", "up", "top", "drive", "probe", "train"}
STAYS |= {"int", "store", "training", "demo", "logs", "measure"}
"""Last words of commands that may run until they are stopped, or longer than a call has."""

_GIVEN = {
    "PROGRAM.json": "forwarder.json",
    "P4INFO": "forwarder.p4info.txtpb",
    "TEST.stf": "test.stf",
    "PACKET": "02" * 20,
    "TOPOLOGY": "leaf-spine",
    "KIND": "pod",
    "DAEMON": "collector",
    "NAME=FILE": "a=empty",
    "A->B": "leaf1->spine1",
    "down|up": "up",
    "up|down": "up",
    "STATEMENT|OPERATOR": "select a from t",
    "SQL": "select 1",
    "ADDRESS": "unix:none.sock",
    "HOST:PORT": "127.0.0.1:0",
    "INDEX": "1",
    "VALUE": "1",
    "FOLDER": "folder",
}
_NAMED = {"spec": "leaf-spine", "topology_spec": "leaf-spine", "settings": "settings.yaml", "index": "1"}


def calls() -> Iterator[tuple[str, ...]]:
    """Yield command lines, each with one hostile value, in the order of the commands."""
    for name, command in TREE.items():
        if name in DANGEROUS:
            continue
        yield from _of(name.split(), command.params)
    for option in ("--log-level", "--log-format"):
        yield from ((option, value, "topology", "list") for value in HOSTILE)
    yield from (("switch", value) for value in HOSTILE)
    yield from (("switch", option, value) for option in SWITCH_OPTIONS for value in HOSTILE)


SWITCH_OPTIONS = (
    "--p4info", "--presets", "-i", "--device-id", "--port-rate", "--port-queue", "--port-delay", "--port-jitter",
    "--join-segments", "--grpc-server-addr", "--grpc-server-cert", "--grpc-server-tokens", "--deflect-session",
    "--cpu-port", "--drop-port", "-L", "--log-file", "--trace-filter", "--trace-file", "--trace-limit",
    "--trace-rate", "--ready-file", "--stats-file", "--metrics-port", "--lifeline-fd", "--seed", "--threads",
    "--spin-us", "--files-wait", "--io", "--pipeline", "--packet-in", "--thrift-port", "--use-files",
)  # fmt: skip


def _of(words: list[str], params: list[Any]) -> Iterator[tuple[str, ...]]:
    """Yield a command with each hostile value for each of its parameters; the others get plausible values."""
    needed = [param for param in params if param.required]
    for param in params:
        if getattr(param, "is_flag", False) or _is_flag(param):
            continue
        others = [word for other in needed if other is not param for word in _words(other, _plain(other))]
        for value in _values(param):
            yield (
                (*words, *_words(param, value), *others)
                if _is_option(param)
                else _argument(words, params, param, value)
            )


def _values(param: Any) -> tuple[str, ...]:
    """Return the values to try for a parameter; few for a choice, which the parser checks."""
    kind = param.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "", "\udcff", "-1"
    if kind is Path:
        return *FILES, "", "-1", "\udcff\udcfe", "x" * 100_000, "\n"
    return (*NUMBERS, *WORDS) if kind in {int, float} else HOSTILE


def _argument(words: list[str], params: list[Any], param: Any, value: str) -> tuple[str, ...]:
    options: list[str] = []
    arguments: list[str] = []
    for other in params:
        chosen = value if other is param else _plain(other)
        if _is_option(other) and other.required:
            options += _words(other, chosen)
        elif not _is_option(other) and (other.required or other is param):
            arguments.append(chosen)
    return (*words, *options, "--", *arguments)


def _words(param: Any, value: str) -> list[str]:
    if not _is_option(param):
        return [value]
    option = max(param.opts, key=len)
    return [f"{option}={value}"] if option.startswith("--") else [option, value]


def _is_option(param: Any) -> bool:
    return bool(param.param_type_name == "option")


def _is_flag(param: Any) -> bool:
    return param.type_descriptor.annotation is bool


def _plain(param: Any) -> str:
    named = _NAMED.get(param.name)
    return named if named is not None else _GIVEN.get(param.metavar or "", "x")


MOST_MEMORY_MB = 1500
LISTS = {"probe trace": "says of a program all that was not seen", "probe build": "as `probe trace`"}
"""Commands that may end with more than a line of their own."""


def problem_of(result: Mapping[str, Any]) -> str | None:
    """Return the problem with a call's result from `sandbox.py`; None if there is none."""
    errors, status = result["said"].strip(), result["status"]
    lines = errors.splitlines()
    if "Traceback" in errors:
        return f"a stack trace: {lines[-1]}"
    if result["stopped"]:
        return None if result["stays"] else "it hangs"
    if result["memory_mb"] > MOST_MEMORY_MB:
        return f"it takes {result['memory_mb']} MB"
    if status not in {0, 1, 2}:
        return f"status {status}"
    is_list = " ".join(result["words"][:2]) in LISTS
    if status == 1 and not is_list and (len(lines) != 1 or not errors.startswith("millrace")):
        return f"no line, or several: {errors[-300:]}"
    return None
