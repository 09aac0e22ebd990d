"""Finds races in source code open to anyone who may write to a folder: a path that is checked and then used.

Between check and use an attacker puts a link there, and the use goes elsewhere with the program's rights. A folder
that others may write is opened once, without following links, and from then on known by its descriptor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

CHECKS = frozenset({"exists", "is_file", "is_dir", "is_symlink", "resolve", "stat", "lstat", "access", "isfile"}) | {
    "isdir",
    "islink",
    "lexists",
    "realpath",
}
USES = (
    frozenset({"open", "read_bytes", "read_text", "write_bytes", "write_text", "chown", "lchown", "chmod", "mkdir"})
    | {"makedirs", "unlink", "remove", "rename", "replace", "rmdir", "rmtree", "touch", "symlink_to", "hardlink_to"}
    | {"symlink", "link", "copy", "copy2", "copyfile", "copytree", "move", "iterdir", "scandir", "listdir"}
)
ALWAYS = frozenset({"write_bytes", "write_text", "chown", "lchown", "resolve", "realpath"})
"""Calls that follow links or change ownership, whatever was checked; a resolved path will be used somewhere."""
_ITSELF = "Path(__file__)"
_WRITING = frozenset({"w", "wb", "a", "ab", "w+", "w+b", "r+", "r+b", "wt"})
_OF_MODULES = frozenset({"os", "os.path", "shutil"})
_BY_DESCRIPTOR = frozenset({"dir_fd", "src_dir_fd", "dst_dir_fd"})


@dataclass(frozen=True, slots=True)
class Race:
    """A use by path, in a function, as `Class.function`."""

    function: str
    line: int
    path: str
    use: str
    check: str | None = None

    def __str__(self) -> str:
        """Return it as a readable line."""
        after = f" after {self.check}" if self.check else ""
        return f"{self.function}:{self.line}: {self.use} of {self.path}{after}"


def races_in(source: str) -> list[Race]:
    """Return a module's uses of a path after a check of it, and calls that should always be avoided."""
    return [race for name, function in _functions(ast.parse(source), "") for race in _races(name, function)]


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield top-level functions, and the module's own statements."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield f"{prefix}<module>", child


def _races(name: str, function: ast.AST) -> Iterator[Race]:
    checked: dict[str, str] = {}
    for node in _in_order(function):
        if isinstance(node, ast.Assign | ast.NamedExpr):
            checked |= _resolved(node)
        if not isinstance(node, ast.Call) or any(word.arg in _BY_DESCRIPTOR for word in node.keywords):
            continue
        word_and_path = _word_and_path(node)
        if word_and_path is None:
            continue
        word, path = word_and_path
        is_refused = word in ALWAYS or (word == "open" and _writes(node))
        if (is_refused and path != _ITSELF) or (word in USES and path in checked):
            yield Race(name, node.lineno, path, word, checked.get(path))
        if word in CHECKS:
            checked[path] = word


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node's descendants in source order, innermost calls first."""
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)
    yield node


def _resolved(node: ast.Assign | ast.NamedExpr) -> dict[str, str]:
    """Return the names of a resolved path: links are followed then, and again at its use."""
    if not isinstance(node.value, ast.Call):
        return {}
    word_and_path = _word_and_path(node.value)
    if word_and_path is None or word_and_path[0] not in ("resolve", "realpath"):
        return {}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {ast.unparse(target): word_and_path[0] for target in targets}


def _writes(call: ast.Call) -> bool:
    """Return whether a file is opened with a mode to write, other than to make it: that follows no link."""
    modes = [*call.args, *(word.value for word in call.keywords)]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(text in _WRITING for text in texts)


def _word_and_path(call: ast.Call) -> tuple[str, str] | None:
    """Return a call's action and path: `path.open()`, `os.open(path)` and `open(path)` are the same."""
    function = call.func
    if isinstance(function, ast.Name) and function.id in ("open", "rmtree") and call.args:
        return function.id, ast.unparse(call.args[0])
    if not isinstance(function, ast.Attribute) or function.attr not in CHECKS | USES:
        return None
    if ast.unparse(function.value) in _OF_MODULES:
        return (function.attr, ast.unparse(call.args[0])) if call.args else None
    path = function.value
    if isinstance(path, ast.Call) and _word_and_path(path) is not None:
        return function.attr, _word_and_path(path)[1]  # type: ignore[index]  # path.resolve().open()
    return function.attr, ast.unparse(path)
