"""Command lines in pages, checked against the command tree."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.main import get_command

from controller.apps.cli.app import app
from dataplane.errors import ConfigError
from dataplane.switch.arguments import parse_arguments

OWN = "millrace"
SHELL = {"sh", "bash", "console", ""}
"""Languages of blocks that may hold command lines."""
PACKAGES = ("dataplane", "collectors", "controller")
TREE: Any = get_command(app)

_BLOCK = re.compile(r"^(?P<fence>```+)(?P<language>\w*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(?P<text>(?:sudo )?millrace [^`\n]+)`")
_PLACEHOLDER = re.compile(r"^[\[(]?(?:[A-Z][A-Z0-9_]*(?:[:=.,|@-][A-Z][A-Z0-9_]*)*|\.\.\.|<.*>|\$\S+)[\])]?$")
_ENDS = {";", "&", "&&", "|", "||", "(", ")", "then", "do", "done", "{", "}"}
_OPERATOR = re.compile(r"^[<>&|;()]+$")
_ABSENT = ("does not exist", "No such file or directory", "there is no such file")


@dataclass(frozen=True, slots=True)
class Line:
    """Words that follow `millrace` somewhere in a page."""

    number: int
    words: tuple[str, ...]
    is_whole: bool
    """True for a line of a block, to be typed as is; False for words of a sentence."""


def lines_of(page: Path) -> Iterator[Line]:
    """Yield every command line of ours in a page's blocks and sentences."""
    text = page.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        if block["language"] in SHELL:
            first = text.count("\n", 0, block.start("text")) + 1
            for number, line in _joined(block["text"], is_console=block["language"] == "console"):
                yield from (Line(first + number, words, is_whole=True) for words in commands_in(line))
    for span in _SPAN.finditer(_BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)):
        number = text.count("\n", 0, text.find(span[0])) + 1
        if ": " not in span["text"]:  # a message of ours, which begins with the program's name
            yield from (Line(number, words, is_whole=False) for words in commands_in(span["text"]))


def _joined(text: str, *, is_console: bool) -> Iterator[tuple[int, str]]:
    """Yield lines joined at backslashes; of a console, those after `$`."""
    begin, held = 0, ""
    for number, line in enumerate(text.splitlines()):
        begin = number if not held else begin
        held += line.removesuffix("\\") + (" " if line.endswith("\\") else "")
        if line.endswith("\\"):
            continue
        if not is_console or held.startswith(("$ ", "# ")):
            yield begin, held[2:] if is_console else held
        held = ""


def commands_in(line: str) -> Iterator[tuple[str, ...]]:
    """Yield the arguments of each `millrace` command in a shell line."""
    words: list[str] = []
    for word in [*_words(line), ";"]:
        if word in _ENDS or _OPERATOR.match(word):
            index = next((at for at, word in enumerate(words) if word.rpartition("/")[2] == OWN), None)
            if index is not None and all(map(_is_before, words[:index])):
                yield tuple(words[index + 1 :])
            words = []
        else:
            words.append(word)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that ends on another line
        return []


def _is_before(word: str) -> bool:
    """Return whether a word may stand before a command: sudo, its options, `exec`, `NAME=VALUE`, a namespace."""
    return word in {"sudo", "exec", "time", "nohup", "env", "ip", "netns", "$"} or word.startswith("-") or "=" in word


def problem_of(line: Line) -> str | None:
    """Return why the command tree rejects a line; None if it accepts it, or if the line has placeholders."""
    return _strict(list(line.words)) if line.is_whole else _lax(line.words)


def _strict(words: list[str]) -> str | None:
    if not words:
        return None  # it prints its help
    command, context, name = TREE, None, OWN
    is_open = any(map(_PLACEHOLDER.match, words)) or any("..." in word for word in words)
    while True:
        if name == "switch" and words[:1] != ["show"]:
            return _switch(words, is_open=is_open)
        before = list(words)
        try:
            context = command.make_context(name, list(words), parent=context)
            if not hasattr(command, "commands"):
                return None
            rest = [*getattr(context, "_protected_args", []), *context.args]
            if not rest:
                return None
            name, command, words = command.resolve_command(context, rest)
        except SystemExit:
            return None
        except Exception as error:  # noqa: BLE001 - of a library that is a part of another one
            problem = f"{type(error).__name__}: {getattr(error, 'message', '') or error}"
            if type(error).__name__ == "Exit" or any(absent in problem for absent in _ABSENT):
                return None
            if is_open and ("BadParameter" in problem or "MissingParameter" in problem):
                return _lax(tuple(before), command)
            return problem


def _switch(words: list[str], *, is_open: bool) -> str | None:
    try:
        parse_arguments(words)
    except ConfigError as error:
        problem = str(error)
        return None if is_open or any(absent in problem for absent in _ABSENT) else problem
    except SystemExit:  # --help
        pass
    return None


def _lax(words: tuple[str, ...], command: Any = TREE) -> str | None:
    """Look up the commands and options that a line names, `a|b` as alternatives; ignore the rest."""
    commands = [(command, set(_options(command)))]
    for word in words:
        if word.startswith("-") and word.strip("-[]"):
            option = re.match(r"--?[\w-]+", word)
            names = {name for _, options in commands for name in options} | {"--help"}
            if option is not None and option[0] not in names and "switch" not in words[:2]:
                return f"there is no option {option[0]}"
        else:
            commands = _descended(commands, word)
            if not commands:
                return f"there is no command {word}"
    return None


def _descended(commands: list[tuple[Any, set[str]]], word: str) -> list[tuple[Any, set[str]]]:
    """Return the commands that a word leads to; leaf commands take any word."""
    following: list[tuple[Any, set[str]]] = []
    for command, options in commands:
        below = getattr(command, "commands", None)
        if below is None or _PLACEHOLDER.match(word) or word in {"...", "COMMAND"}:
            following.append((command, options))
            continue
        following += [
            (below[name], options | set(_options(below[name])))
            for name in re.split(r"[|,]", word.strip(",.;"))
            if name in below
        ]
    return following


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)


@dataclass(frozen=True, slots=True)
class Script:
    """A call of Python in a block: the file that is run, and its options."""

    file: str
    options: tuple[str, ...]


def scripts_of(page: Path) -> Iterator[Script]:
    """Yield calls of `python -m MODULE` and `python FILE` of this repository in a page's blocks."""
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] not in SHELL:
            continue
        for _, line in _joined(block["text"], is_console=block["language"] == "console"):
            match = re.search(
                r"python3? (?:-m (?P<module>(?:tests|dataplane|collectors|controller)[\w.]*)|(?P<file>\w+/\S+\.py))",
                line,
            )
            if match is not None:
                words = line[match.end() :].partition("#")[0].split()
                file = match["file"] or match["module"].replace(".", "/")
                yield Script(file, tuple(word.partition("=")[0] for word in words if word.startswith("--")))


def problem_of_script(script: Script, root: Path) -> str | None:
    """Return the missing file, or the option that none of its files names."""
    path = root / script.file
    files = [path] if path.suffix == ".py" else [path.with_suffix(".py"), *path.glob("*.py")]
    folder = path if path.is_dir() else path.parent
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    if not texts:
        return f"there is no {script.file}"
    texts += [file.read_text(encoding="utf-8") for file in folder.rglob("*.py")] if script.options else []
    gone = next((option for option in script.options if not any(f'"{option}"' in text for text in texts)), None)
    return None if gone is None else f"{script.file} has no option {gone}"


def imports_of(page: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of all imports from the packages in a page's Python, run or not; it must compile, too."""
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["language"] == "python":
            tree = ast.parse(block["text"])
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] in PACKAGES:
                    yield from ((node.module, name.name) for name in node.names)
