"""Parsing of requests: bytes to values, with ALTO's code, field and value for each refusal (RFC 7285 section 8.5.2)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from controller.cluster.alto.values import ErrorCode
from controller.common.errors import AltoError

T = TypeVar("T")

_PLACE: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_MISSING: Final = re.compile(r"missing required field `([^`]*)`")
_COMPARISONS: Final[dict[str, Callable[[Any, float], Any]]] = {
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
    "eq": operator.eq,
}
_ADDRESS_TYPES: Final[dict[str, type[IPv4Address] | type[IPv6Address]]] = {"ipv4": IPv4Address, "ipv6": IPv6Address}


def read(body: bytes, schema: type[T]) -> T:
    """Parse a request; raise AltoError for invalid JSON, a missing field, or one of the wrong type."""
    try:
        return msgspec.json.decode(body, type=schema)
    except msgspec.ValidationError as error:
        text = str(error)
        location = _PLACE.search(text)
        path = "" if location is None else _field(location.group(1))
        missing = _MISSING.search(text)
        if missing is not None:
            name = "/".join(filter(None, (path, missing.group(1))))
            raise AltoError(ErrorCode.MISSING_FIELD, field=name) from None
        raise AltoError(ErrorCode.INVALID_FIELD_TYPE, field=path or None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AltoError(ErrorCode.SYNTAX, syntax_error=str(error)) from None


def _field(location: str) -> str:
    """Return a location in a document in ALTO's notation of fields: cost-type/cost-mode."""
    return re.sub(r"\[[^\]]*\]", "", location).replace(".", "/")


@dataclass(frozen=True, slots=True)
class Constraint:
    """A test that costs must pass, such as `le 20`."""

    comparison: str
    limit: float

    def passed_by(self, values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the costs that pass."""
        mask: npt.NDArray[np.bool_] = _COMPARISONS[self.comparison](values, self.limit)
        return mask


def constraints_of(texts: tuple[str, ...]) -> tuple[Constraint, ...]:
    """Return a request's constraints; raise AltoError unless each compares with a number."""
    return tuple(_constraint(text) for text in texts)


def _constraint(text: str) -> Constraint:
    parts = text.split()
    if len(parts) == 2 and parts[0] in _COMPARISONS:
        try:
            limit = float(parts[1])
        except ValueError:
            limit = float("nan")
        if np.isfinite(limit):
            return Constraint(parts[0], limit)
    raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="constraints", value=text)


def address_of(text: str, field: str) -> IPv4Address | IPv6Address:
    """Parse a typed endpoint address, such as ipv4:10.0.0.1; raise AltoError."""
    kind, _, rest = text.partition(":")
    try:
        return _ADDRESS_TYPES[kind](rest)
    except (KeyError, ValueError):
        raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field=field, value=text) from None


def typed(address: IPv4Address | IPv6Address) -> str:
    """Return an address with its ALTO type."""
    return f"ipv{address.version}:{address}"


def client_address(text: str | None) -> IPv4Address | IPv6Address | None:
    """Return the client's address, None if it has none, as on a UNIX socket."""
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    # A dual-stack socket shows IPv4 clients as ::ffff:a.b.c.d.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
