"""Exceptions of msgspec for invalid bytes, which are more than its own."""

from __future__ import annotations

from typing import Final

import msgspec

MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""No value, or one of another type; text that is not UTF-8; nesting too deep."""
