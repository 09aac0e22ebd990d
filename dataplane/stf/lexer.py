"""Tokenizer of test file lines, and parsing of numbers and packet data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from dataplane.errors import ConfigError
from dataplane.stf.statements import Number

_BITS_PER_DIGIT = {"0x": 4, "0o": 3, "0b": 1}
_TOKEN = re.compile(
    r"""
      (?P<number> 0[xX][0-9a-fA-F*]+ | 0[oO][0-7*]+ | 0[bB][01*]+ | \d+\.\d+ | \d+ )
    | (?P<name> [A-Za-z_$][\w$]* )
    | "(?P<quoted> [^"]+ )"
    | (?P<sign> &&& | -> | == | != | <= | >= | [<>*/:,.()=] | \[ | \] )
    """,
    re.VERBOSE,
)
_DIGITS = re.compile(r"[0-9a-fA-F*]*\$?")


class Kind(StrEnum):
    """Type of a token."""

    NUMBER = "a number"
    NAME = "a name"
    SIGN = "a sign"
    END = "the end of the line"


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its text, without quotes."""

    kind: Kind
    text: str


class Tokens:
    """The tokens of one line, consumed from the left; every error is a ConfigError that names file and line."""

    def __init__(self, text: str, file: str, line: int) -> None:
        self.file, self.line = file, line
        self._tokens = self._cut(text)
        self._next = 0

    def error(self, problem: str) -> ConfigError:
        """Return an error about the line."""
        return ConfigError(problem, file=self.file, line=self.line)

    def peek(self, ahead: int = 0) -> Token:
        """Return an upcoming token without consuming it."""
        index = self._next + ahead
        return self._tokens[index] if index < len(self._tokens) else Token(Kind.END, "")

    def take(self) -> Token:
        """Consume the next token."""
        token = self.peek()
        self._next += 1
        return token

    def take_if(self, sign: str) -> bool:
        """Consume the next token if it is `sign`, and return whether it was."""
        if self.peek() != Token(Kind.SIGN, sign):
            return False
        self._next += 1
        return True

    def want(self, sign: str) -> None:
        """Consume `sign`, which is required."""
        if not self.take_if(sign):
            raise self.unexpected(f"'{sign}'")

    def want_end(self) -> None:
        """Check that nothing is left."""
        if self.peek().kind is not Kind.END:
            raise self.unexpected("the end of the line")

    def name(self) -> str:
        """Consume one name."""
        if self.peek().kind is not Kind.NAME:
            raise self.unexpected("a name")
        return self.take().text

    def number(self) -> Number:
        """Consume one number, `*` digits allowed."""
        if self.peek().kind is not Kind.NUMBER or "." in self.peek().text:
            raise self.unexpected("a number")
        return read_number(self.take().text)

    def integer(self) -> int:
        """Consume one number without wildcards."""
        number = self.number()
        if number.has_wildcards:
            raise self.error("a number with the digit * where a plain one is required")
        return number.value

    def real(self) -> float:
        """Consume one number, which may have a decimal point."""
        if self.peek().kind is Kind.NUMBER and "." in self.peek().text:
            return float(self.take().text)
        return float(self.integer())

    def unexpected(self, wanted: str) -> ConfigError:
        """Return the error for a token in place of `wanted`."""
        token = self.peek()
        shown = token.kind.value if token.kind is Kind.END else f"'{token.text}'"
        return self.error(f"{shown} where {wanted} is expected")

    def _cut(self, text: str) -> list[Token]:
        tokens, position = [], 0
        while position < len(text):
            if text[position].isspace():
                position += 1
                continue
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"unexpected '{text[position]}'")
            tokens.append(_token(match))
            position = match.end()
        return tokens


def read_number(text: str) -> Number:
    """Parse a number from a token's text."""
    bits_per_digit = _BITS_PER_DIGIT.get(text[:2].lower())
    if bits_per_digit is None:
        return Number(int(text))
    value = mask = 0
    for digit in text[2:]:
        value, mask = value << bits_per_digit, mask << bits_per_digit
        if digit != "*":
            value |= int(digit, 16)
            mask |= (1 << bits_per_digit) - 1
    return Number(value, mask, bits_per_digit * len(text[2:]))


def read_digits(text: str, file: str, line: int) -> str:
    """Return hex digits and `*`, optionally a final `$`, without spaces; raise ConfigError for other characters."""
    digits = "".join(text.split())
    if _DIGITS.fullmatch(digits) is None:
        raise ConfigError("packet data are hex digits, * for any digit and $ at the end", file=file, line=line)
    return digits.lower()


def _token(match: re.Match[str]) -> Token:
    if match["number"] is not None:
        return Token(Kind.NUMBER, match["number"])
    if match["sign"] is not None:
        return Token(Kind.SIGN, match["sign"])
    return Token(Kind.NAME, match["name"] or match["quoted"])
