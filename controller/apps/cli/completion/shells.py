"""The completion protocol of each shell, as the scripts of `--install-completion` speak it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from controller.apps.cli.completion import sources
from controller.apps.cli.completion.grammar import TABLE, Candidate, Grammar
from dataplane.errors import MillraceError

_SHELLS: Final = ("bash", "zsh", "fish", "powershell", "pwsh")
_BREAKS: Final = re.compile(r"[:=]+")
"""Words of their own for bash (COMP_WORDBREAKS), which it splits from the words around them."""
_PLAIN: Final = re.compile(r"[\w.:/@%+,~=>-]+")
"""Candidates that a shell may be given: zsh evaluates its answer."""


def answer(environ: Mapping[str, str]) -> str | None:
    """Return the text for the shell that asks, None for a shell that only Typer knows.

    Exits with 1 if fish asks whether there are candidates, and there are none.
    """
    action, _, shell = environ["_MILLRACE_COMPLETE"].partition("_")
    if action != "complete" or shell not in _SHELLS:
        return None
    words, begun = _typed(shell, environ)
    candidates = candidates_of(words, begun)
    match shell:
        case "bash":
            return _for_bash(candidates, begun, environ.get("COMP_WORDS", ""))
        case "zsh":
            return _for_zsh(candidates)
        case "fish":
            if environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
                sys.exit(0 if candidates else 1)
            return "\n".join("\t".join(filter(None, candidate)) for candidate in candidates)
        case _:
            return "\n".join(f"{candidate.word}:::{candidate.help or ' '}" for candidate in candidates)


def candidates_of(words: Sequence[str], begun: str) -> list[Candidate]:
    """Return the words that may follow `words`, those after `millrace`, and begin as the one begun."""
    grammar = Grammar(TABLE.read_text(encoding="utf-8"))
    candidates, source, place = grammar.candidates(words, begun)
    if words[:1] == ["help"] and not begun.startswith("-"):
        candidates, source = list(grammar.below(words[1:])), ""
    option, equals, _ = begun.partition("=") if begun.startswith("-") else ("", "", "")
    prefix = option + equals if equals else ""
    if source:
        # An error message would end up on the command line that is being typed.
        with suppress(MillraceError, OSError):
            candidates = [*candidates, *map(Candidate, sources.SOURCES[source](place.given))]
    whole = (Candidate(prefix + candidate.word, candidate.help) for candidate in candidates)
    return [each for each in whole if each.word.startswith(begun) and _PLAIN.fullmatch(each.word)][: sources.MOST]


def _typed(shell: str, environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the complete words after the program's name, and the word that is being typed."""
    if shell == "bash":
        words = _split(environ.get("COMP_WORDS", ""))
        end = int(environ.get("COMP_CWORD", "0"))
        words = words[: end + 1] + [""] * (end + 1 - len(words))
        *before, begun = _joined(words)
        return before[1:], begun
    text = environ.get("_TYPER_COMPLETE_ARGS", "")
    words = _split(text)[1:]
    if not words or text[-1:].isspace():
        return words, ""
    return words[:-1], words[-1]


def _split(text: str) -> list[str]:
    """Return the words of a command line whose last quote may be open."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:
        words.append(lexer.token)
    return words


def _joined(words: Sequence[str]) -> list[str]:
    """Return words with those joined again that bash has split at a colon or an equals sign."""
    joined: list[str] = []
    is_open = False
    for word in words:
        is_break = bool(_BREAKS.fullmatch(word))
        if joined and (is_break or is_open):
            joined[-1] += word
        else:
            joined.append(word)
        is_open = is_break and len(joined) > 1
    return joined


def _for_bash(candidates: Sequence[Candidate], begun: str, line: str) -> str:
    # Bash replaces only what follows the last break of an unquoted word.
    is_quoted = line.count("'") % 2 == 1 or line.count('"') % 2 == 1
    start = 0 if is_quoted else max(begun.rfind(":"), begun.rfind("=")) + 1
    words = (candidate.word[start:] for candidate in candidates)
    return "\n".join(word if is_quoted else shlex.quote(word) for word in words)


def _for_zsh(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "_files"
    return "_arguments '*: :((" + "\n".join(map(_zsh_entry, candidates)) + "))'"


def _zsh_entry(candidate: Candidate) -> str:
    word, about = (
        text.replace('"', '""').replace("'", "''").replace("$", "\\$").replace("`", "\\`").replace(":", r"\\:")
        for text in candidate
    )
    return f'"{word}":"{about}"' if about else f'"{word}"'
