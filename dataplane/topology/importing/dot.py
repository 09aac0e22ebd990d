"""Graphviz' DOT: the whole grammar, of which nodes, edges and their attributes are kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from dataplane.errors import ConfigError
from dataplane.topology.importing.graph import Edge, Graph

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|\A)\#[^\n]*)"""
    r"""|(?P<quoted>"(?:\\.|[^"\\])*")"""
    r"""|(?P<word>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff]*|-?(?:\.\d+|\d+(?:\.\d*)?))"""
    r"""|(?P<mark>->|--|[{}\[\]=;,:+])""",
    re.ASCII | re.DOTALL,
)
_DEPTH: Final = 64
_MOST_EDGES: Final = 1_000_000
_MOST_TOKENS: Final = 2_000_000
_KEYWORDS: Final = frozenset({"graph", "digraph", "subgraph", "node", "edge", "strict"})


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    is_id: bool
    is_plain: bool

    @property
    def keyword(self) -> str:
        """The keyword in lower case, '' if it is none; quoted words are none."""
        return self.text.lower() if self.is_plain and self.text.lower() in _KEYWORDS else ""


def read_dot(data: bytes, file: str) -> Graph:
    """Return a DOT file's graph; raise ConfigError with the line."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=file) from None
    tokens = list(islice(_tokens(text, file), _MOST_TOKENS + 1))
    if len(tokens) > _MOST_TOKENS:
        raise ConfigError(f"has more than {_MOST_TOKENS} words", file=file)
    return _Parser(tokens, file).graph_of_file()


def _tokens(text: str, file: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        if text[at] == "<":
            end = _end_of_html(text, at)
            if end is None:
                raise ConfigError("an HTML string has no end", file=file, line=line)
            yield _Token(text[at + 1 : end - 1], line, is_id=True, is_plain=False)
        else:
            match = _TOKEN.match(text, at)
            if match is None:
                raise ConfigError(f"{text[at]!r} is not DOT", file=file, line=line)
            end = match.end()
            if match.lastgroup == "quoted":
                word = re.sub(r'\\(["\n])', lambda escaped: escaped[1].strip("\n"), match[0][1:-1])
                yield _Token(word, line, is_id=True, is_plain=False)
            elif match.lastgroup != "space":
                yield _Token(match[0], line, is_id=match.lastgroup == "word", is_plain=True)
        line += text.count("\n", at, end)
        at = end


def _end_of_html(text: str, at: int) -> int | None:
    depth = 0
    for match in re.compile("[<>]").finditer(text, at):
        depth += 1 if match[0] == "<" else -1
        if not depth:
            return match.end()
    return None


class _Parser:
    def __init__(self, tokens: list[_Token], file: str) -> None:
        self._tokens, self._file, self._at = tokens, file, 0
        self._graph = Graph()

    def graph_of_file(self) -> Graph:
        if self._keyword() == "strict":
            self._at += 1
        if self._keyword() not in {"graph", "digraph"}:
            raise self._error("a DOT file begins with graph or digraph")
        self._graph.is_directed = self._keyword() == "digraph"
        self._at += 1
        if self._is_id():
            self._at += 1
        self._block({}, {}, 0)
        if self._at < len(self._tokens):
            raise self._error("there is more after the graph's end")
        return self._graph

    def _block(self, node: dict[str, str], edge: dict[str, str], depth: int) -> list[str]:
        """Read statements in braces with the defaults of nodes and edges; return the nodes within."""
        if depth >= _DEPTH:
            raise self._error(f"nests deeper than {_DEPTH} subgraphs")
        node, edge, inside = dict(node), dict(edge), dict[str, None]()
        self._expect("{")
        while not self._take("}"):
            if self._take(";"):
                continue
            keyword = self._keyword()
            if keyword in {"graph", "node", "edge"}:
                self._at += 1
                defaults = {"node": node, "edge": edge}.get(keyword, {})
                defaults.update(self._attributes())
            elif self._is_id() and not keyword and self._text(1) == "=":
                self._at += 2
                self._id()
            else:
                inside.update(dict.fromkeys(self._chain(node, edge, depth)))
        return list(inside)

    def _chain(self, node: dict[str, str], edge: dict[str, str], depth: int) -> list[str]:
        """Read nodes, or subgraphs, and the edges between them."""
        groups = [self._group(node, edge, depth)]
        while self._text() in {"--", "->"} and not self._tokens[self._at].is_id:
            self._at += 1
            groups.append(self._group(node, edge, depth))
        attributes = self._attributes()
        if len(groups) == 1:
            for name in groups[0] if attributes else ():
                self._graph.nodes[name].update(attributes)
        for before, after in pairwise(groups):
            if len(self._graph.edges) + len(before) * len(after) > _MOST_EDGES:
                raise self._error(f"there are more than {_MOST_EDGES} edges")
            self._graph.edges += [Edge(a, b, {**edge, **attributes}) for a in before for b in after]
        return [name for group in groups for name in group]

    def _group(self, node: dict[str, str], edge: dict[str, str], depth: int) -> list[str]:
        if self._keyword() == "subgraph":
            self._at += 1
            if self._is_id():
                self._at += 1
        elif self._text() != "{":
            name = self._id()
            while self._take(":"):  # a port, and a compass point
                self._id()
            self._graph.nodes.setdefault(name, dict(node))
            return [name]
        return self._block(node, edge, depth + 1)

    def _attributes(self) -> dict[str, str]:
        attributes: dict[str, str] = {}
        while self._take("["):
            while not self._take("]"):
                if self._take(";") or self._take(","):
                    continue
                name = self._id()
                attributes[name.lower()] = self._id() if self._take("=") else "true"
        return attributes

    def _id(self) -> str:
        words: list[str] = []
        while not words or self._take("+"):
            if not self._is_id() or self._keyword():
                raise self._error(f"expected a name, got {self._text()[:40]!r}")
            words.append(self._tokens[self._at].text)
            self._at += 1
        return "".join(words)

    def _is_id(self) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].is_id

    def _keyword(self) -> str:
        return self._tokens[self._at].keyword if self._at < len(self._tokens) else ""

    def _text(self, ahead: int = 0) -> str:
        at = self._at + ahead
        return self._tokens[at].text if at < len(self._tokens) else ""

    def _take(self, mark: str) -> bool:
        if self._at >= len(self._tokens):
            raise self._error("the file ends in the middle")
        token = self._tokens[self._at]
        if token.text != mark or token.is_id:
            return False
        self._at += 1
        return True

    def _expect(self, mark: str) -> None:
        if not self._take(mark):
            raise self._error(f"expected {mark}, got {self._text()[:40]!r}")

    def _error(self, problem: str) -> ConfigError:
        line = self._tokens[min(self._at, len(self._tokens) - 1)].line if self._tokens else 1
        return ConfigError(problem, file=self._file, line=line)
