"""ALTO's JSON objects (RFC 7285 section 11; RFC 9439 section 3): requests, and the parts of answers.

Unknown fields of requests are ignored, as the protocol requires for its extensions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

DIRECTORY_TYPE: Final = "application/alto-directory+json"
NETWORK_MAP_TYPE: Final = "application/alto-networkmap+json"
NETWORK_FILTER_TYPE: Final = "application/alto-networkmapfilter+json"
COST_MAP_TYPE: Final = "application/alto-costmap+json"
COST_FILTER_TYPE: Final = "application/alto-costmapfilter+json"
PROPERTY_TYPE: Final = "application/alto-endpointprop+json"
PROPERTY_PARAMETERS_TYPE: Final = "application/alto-endpointpropparams+json"
ENDPOINT_COST_TYPE: Final = "application/alto-endpointcost+json"
ENDPOINT_COST_PARAMETERS_TYPE: Final = "application/alto-endpointcostparams+json"
ERROR_TYPE: Final = "application/alto-error+json"


class Kebab(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True, kw_only=True):
    """Base of ALTO's objects: `cost_type` is written cost-type, defaults are omitted."""


class ErrorCode(StrEnum):
    """Codes of refusals, RFC 7285 section 8.5.2."""

    SYNTAX = "E_SYNTAX"
    MISSING_FIELD = "E_MISSING_FIELD"
    INVALID_FIELD_TYPE = "E_INVALID_FIELD_TYPE"
    INVALID_FIELD_VALUE = "E_INVALID_FIELD_VALUE"


class CostMode(StrEnum):
    """Meaning of costs: numbers to calculate with, or only ranks."""

    NUMERICAL = "numerical"
    ORDINAL = "ordinal"


class VersionTag(Kebab, frozen=True):
    """A version of a resource."""

    resource_id: str
    tag: str


class CostContext(Kebab, frozen=True):
    """Source of a metric (RFC 9439 section 3.1); `parameters` are this server's, see `Provenance`."""

    cost_source: str
    parameters: Provenance | None = None


class Provenance(Kebab, frozen=True):
    """Basis of an answer's figures: numbers of pairs by basis, and ages (ms) of the state and of the oldest figure."""

    unit: str
    pairs_measured: int
    pairs_partly_measured: int
    pairs_nominal: int
    state_age_ms: float
    oldest_figure_age_ms: float | None = None


class CostType(Kebab, frozen=True):
    """A metric and its mode."""

    cost_mode: str
    cost_metric: str
    description: str | None = None
    cost_context: CostContext | None = None


class Meta(Kebab, frozen=True):
    """Metadata of an answer."""

    vtag: VersionTag | None = None
    dependent_vtags: tuple[VersionTag, ...] = ()
    cost_type: CostType | None = None


class ErrorMeta(Kebab, frozen=True):
    """Reason of a refusal: the field (as a path) and its value, or the position of the syntax error."""

    code: ErrorCode
    syntax_error: str | None = None
    field: str | None = None
    value: str | None = None


class ErrorAnswer(Kebab, frozen=True):
    """A refusal."""

    meta: ErrorMeta


class AskedCostType(Kebab, frozen=True):
    """The cost type of a request."""

    cost_mode: str
    cost_metric: str


class Pids(Kebab, frozen=True):
    """Requested PIDs of a cost map; empty: all."""

    srcs: tuple[str, ...] = ()
    dsts: tuple[str, ...] = ()


class NetworkFilter(Kebab, frozen=True):
    """A request for a part of a network map, section 11.3.1.3; no PIDs: all."""

    pids: tuple[str, ...]
    address_types: tuple[str, ...] = ()


class CostFilter(Kebab, frozen=True):
    """A request for a part of a cost map, section 11.3.2.3."""

    cost_type: AskedCostType
    constraints: tuple[str, ...] = ()
    pids: Pids = Pids()


class Endpoints(Kebab, frozen=True):
    """Addresses such as `ipv4:10.0.0.1`; empty: the client's."""

    srcs: tuple[str, ...] = ()
    dsts: tuple[str, ...] = ()


class EndpointCostRequest(Kebab, frozen=True):
    """A request for costs between addresses, section 11.5.1.3."""

    cost_type: AskedCostType
    endpoints: Endpoints
    constraints: tuple[str, ...] = ()


class PropertyRequest(Kebab, frozen=True):
    """A request for properties of addresses, section 11.4.1.3."""

    properties: tuple[str, ...]
    endpoints: tuple[str, ...]
