"""The `millrace` command: every error of ours is one line on stderr and exit status 1."""

from __future__ import annotations

import sys

from dataplane.errors import MillraceError


def main() -> None:
    """Run the command line; exit 0 on success, 1 on an error of the user's world, 2 on wrong usage, 130 on Ctrl-C."""
    from controller.cli.app import app  # noqa: PLC0415 - a broken import must still end as one line below

    try:
        app(standalone_mode=True)
    except MillraceError as error:
        print(f"millrace: {error}", file=sys.stderr)  # noqa: T201 - this is the command's voice
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
