"""Commands, options and arguments as lines of commands.txt, and the values that may follow words of a command line.

A line is a command's words, its help and its parameters, separated by tabs. A parameter is `NAME=VALUES` for an
argument (`NAME*=` if it repeats) or `--long,-s=VALUES` for an option, without `=` for a flag. VALUES are choices
separated by commas, `@SOURCE` for a function of `sources`, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

TABLE: Final = Path(__file__).with_name("commands.txt")
_HELP: Final = "--help"


class Candidate(NamedTuple):
    """A word that may be typed next, with its help."""

    word: str
    help: str = ""


class Parameter(NamedTuple):
    """An option or an argument."""

    names: tuple[str, ...]
    values: str | None
    """None for a flag."""
    repeats: bool

    @property
    def is_option(self) -> bool:
        """Return whether it begins with a dash."""
        return self.names[0].startswith("-")


class Command(NamedTuple):
    """A command or a group of commands."""

    words: tuple[str, ...]
    help: str
    parameters: tuple[Parameter, ...]

    @property
    def options(self) -> dict[str, Parameter]:
        """Options by each of their names."""
        return {name: option for option in self.parameters if option.is_option for name in option.names}

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """Arguments in their order."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_option)


class Place(NamedTuple):
    """The end of a command line: its command, what was given, and what is expected there."""

    command: Command
    given: dict[str, str]
    """Values by the first name of their option or argument."""
    arguments: int
    """Number of arguments before the end."""
    awaited: Parameter | None
    """Option whose value comes next."""
    only_arguments: bool
    """After `--`."""


class Grammar:
    """All commands."""

    def __init__(self, text: str) -> None:
        self._lines = {tuple(line.partition("\t")[0].split()): line for line in text.splitlines() if line}

    def command(self, words: Sequence[str]) -> Command:
        """Return a command by its words, the root for none."""
        _, about, *parameters = self._lines[tuple(words)].split("\t")
        return Command(tuple(words), about, tuple(map(_parameter, parameters)))

    def below(self, words: Sequence[str]) -> Iterator[Candidate]:
        """Yield the commands of a group, in the order of its help."""
        for path, line in self._lines.items():
            if len(path) == len(words) + 1 and path[:-1] == tuple(words):
                yield Candidate(path[-1], line.split("\t")[1])

    def place(self, words: Sequence[str]) -> Place:
        """Return where the words lead, those after `millrace`."""
        command, given, count = self.command(()), dict[str, str](), 0
        awaited, only_arguments = None, False
        for word in words:
            if awaited is not None:
                given[awaited.names[0]], awaited = word, None
            elif word == "--" and not only_arguments:
                only_arguments = True
            elif word.startswith("-") and len(word) > 1 and not only_arguments:
                name, equals, value = word.partition("=")
                option = command.options.get(name)
                if option is not None and option.values is not None:
                    if equals:
                        given[option.names[0]] = value
                    else:
                        awaited = option
            elif not count and (*command.words, word) in self._lines:
                command = self.command((*command.words, word))
            else:
                argument = _at(command.arguments, count)
                if argument is not None:
                    given[argument.names[0]] = word
                count += 1
        return Place(command, given, count, awaited, only_arguments)

    def candidates(self, words: Sequence[str], begun: str) -> tuple[list[Candidate], str, Place]:
        """Return the possible next words, the source of more (`@...`, or none), and the place.

        With a value begun as `--option=value`, the candidates are values alone.
        """
        place = self.place(words)
        name, equals, _ = begun.partition("=")
        parameter = place.awaited
        if parameter is None and begun.startswith("-") and not place.only_arguments:
            if not equals:
                used = {option.names for option in place.command.options.values() if option.names[0] in place.given}
                names = [option.names[0] for option in place.command.parameters if option.is_option]
                return [Candidate(name) for name in (*names, _HELP) if (name,) not in used], "", place
            parameter = place.command.options.get(name)
        elif parameter is None:
            parameter = _at(place.command.arguments, place.arguments)
        below = [] if place.awaited or place.arguments or equals else list(self.below(place.command.words))
        if parameter is None or not parameter.values:
            return below, "", place
        if parameter.values.startswith("@"):
            return below, parameter.values[1:], place
        return [*below, *map(Candidate, parameter.values.split(","))], "", place


def _parameter(text: str) -> Parameter:
    names, equals, values = text.partition("=")
    return Parameter(tuple(names.rstrip("*").split(",")), values if equals else None, names.endswith("*"))


def _at(arguments: Sequence[Parameter], index: int) -> Parameter | None:
    """Return the argument at an index, the last one for all that follow it if it repeats."""
    if index < len(arguments):
        return arguments[index]
    return arguments[-1] if arguments and arguments[-1].repeats else None
