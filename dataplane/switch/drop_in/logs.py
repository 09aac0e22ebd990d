"""Destination of the switch's log: standard error, standard output as bmv2's `--log-console`, or a rotating file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from dataplane.errors import SwitchError
from dataplane.switch.drop_in.options import Bmv2Options

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


@contextmanager
def logging_to(file: Path | None, level: str, options: Bmv2Options) -> Iterator[None]:
    """Send our log where the options say, and restore logging afterwards; raise SwitchError."""
    handler = _handler(file, options)
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger("millrace")
    level_before = root.level
    root.addHandler(handler)
    root.setLevel(_LEVELS[level])
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level_before)
        handler.close()


def _handler(file: Path | None, options: Bmv2Options) -> logging.Handler:
    if file is None:
        return logging.StreamHandler(sys.stdout if options.log_console else sys.stderr)
    try:
        # A size of 0 never rotates.
        return RotatingFileHandler(file, maxBytes=options.log_file_bytes, backupCount=options.log_files)
    except OSError as error:
        raise SwitchError(f"{file}: {error.strerror}") from error
