"""The `millrace` command: every error of ours is one line on stderr and exit status 1."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from typing import Final

from controller.apps.cli.shared.plain_output import plain_output
from controller.apps.cli.table import help_text
from dataplane.errors import MillraceError, in_one_line, is_text
from dataplane.version import VERSION

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors raised when an output has no room left."""

_SERVERS: Final = {
    "API": "api",
    "collector": "collector",
    "controller": "controller",
    "job service": "controller",
    "path server": "paths",
}
"""Commands of the services that errors name."""
_REFUSED: Final = re.compile(rf"\b(?P<server>{'|'.join(_SERVERS)}) at \S+: cannot connect: ")

_COMPLETING: Final = "_MILLRACE_COMPLETE"
"""Variable in which a shell's script says that it completes, and which shell it is."""
_WITH_VALUE: Final = {"--log-format", "--log-level"}
"""Options before a command that take a word."""


def main() -> None:
    """Run the command line; exit 0 on success, 1 on an error, 2 on wrong usage, 130 on Ctrl-C."""
    # gRPC logs the errors that we report too, in several lines each.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _check_words()
    with plain_output():
        _run_to_the_end()


def _run_to_the_end() -> None:
    try:
        _run()
    except (MillraceError, ImportError) as error:
        print(in_one_line(_line(error)), file=sys.stderr)  # noqa: T201 - this is the command's voice
        sys.exit(1)
    except KeyboardInterrupt:
        # 128 and the number of SIGINT, as shells report it.
        sys.exit(130)
    except BrokenPipeError:
        _drop_output()  # its reader has gone
        sys.exit(1)
    except OSError as error:
        if error.filename is None and error.errno not in _FULL:
            raise
        if error.filename is None:
            _drop_output()
        where = "output" if error.filename is None else os.fsdecode(error.filename)
        print(in_one_line(f"millrace: {where}: {error.strerror}"), file=sys.stderr)  # noqa: T201
        sys.exit(1)


def _check_words() -> None:
    """Exit 2 for a word that is not UTF-8, unless it is the name of a file, the only kind that may be bytes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # such names are printed as they are
    for word in sys.argv[1:]:
        if not word.isascii() and not is_text(word) and not any(map(os.path.lexists, (word, word.partition("=")[2]))):
            print(in_one_line(f"millrace: {word}: is not UTF-8 text"), file=sys.stderr)  # noqa: T201
            sys.exit(2)


def _run() -> None:
    """Run the command; raise OSError, as any command may, if its output cannot be written."""
    try:
        # Typer alone is more than a hundred modules.
        if sys.argv[1:] in (["--help"], ["help"]):
            print(help_text())  # noqa: T201
            return
        if sys.argv[1:] in (["version"], ["--version"]):
            print(f"millrace {VERSION}")  # noqa: T201
            return
        if _COMPLETING in os.environ and _completes():
            return
        from controller.apps.cli.app import app  # noqa: PLC0415 - a missing package must still end as one line

        app(standalone_mode=True)
    finally:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()  # else the interpreter prints several lines about it as it ends


def _completes() -> bool:
    """Answer a shell that completes a command line; return False for a shell that only Typer knows."""
    from controller.apps.cli.completion.shells import answer  # noqa: PLC0415 - only shells ask

    text = answer(os.environ)
    if text:
        print(text)  # noqa: T201
    return text is not None


def _line(error: Exception) -> str:
    """Return an error's text for the user; for a missing package, how to install it."""
    if isinstance(error, ModuleNotFoundError):
        from dataplane.extras import missing  # noqa: PLC0415 - of no use to whoever has everything

        pairs = zip(["", *sys.argv[1:]], sys.argv[1:], strict=False)
        command = next((word for before, word in pairs if word[:1] != "-" and before not in _WITH_VALUE), "")
        line = missing(f"millrace {command}".strip(), error)
        if line is not None:
            return line
    line = f"millrace: {error}"
    return line + _how_to_start(line)


def _how_to_start(line: str) -> str:
    """Return a question to append to the line of a refused connection, '' for another line."""
    refused = _REFUSED.search(line)
    if refused is None:
        return ""
    serve = f"`millrace {_SERVERS[refused['server']]} serve`"
    return f"; is it running? {serve} starts it, and `millrace up` everything"


def _drop_output() -> None:
    """Flush nothing at exit into an output that accepts no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
