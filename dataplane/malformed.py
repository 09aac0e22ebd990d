"""What msgspec raises for bytes that are no value, which is more than errors of its own."""

from __future__ import annotations

from typing import Final

import msgspec

MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""No value, or one of another type; text that is not UTF-8; parts that are in one another too deeply."""
