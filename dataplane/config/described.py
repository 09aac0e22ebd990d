"""Field descriptions of a schema, read from its source, as `millrace config` shows them for each key."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from functools import cache


@cache
def descriptions(schema: type) -> dict[str, str]:
    """Return the description of each field of a class and its bases, on one line each.

    Empty for a class without available source.
    """
    texts: dict[str, str] = {}
    # Bases first, so that a class's own description of a field wins.
    for base in reversed(schema.__mro__):
        if base.__module__.partition(".")[0] in {"builtins", "msgspec"}:
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        texts |= _texts_of_class(tree.body[0])
    return texts


def _texts_of_class(node: ast.stmt) -> dict[str, str]:
    texts = {}
    body = node.body if isinstance(node, ast.ClassDef) else []
    for field, text in itertools.pairwise(body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(sentence))):
                texts[name] = " ".join(sentence.split())
    return texts
