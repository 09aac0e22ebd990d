"""Response bodies, as bytes: pure functions of maps and requests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from controller.cluster.alto.metrics import METRICS, Flags, Metric, Numbers
from controller.cluster.alto.network_maps import HOSTS, Group, NetworkMap
from controller.cluster.alto.values import (
    COST_FILTER_TYPE,
    COST_MAP_TYPE,
    ENDPOINT_COST_PARAMETERS_TYPE,
    ENDPOINT_COST_TYPE,
    NETWORK_FILTER_TYPE,
    NETWORK_MAP_TYPE,
    PROPERTY_PARAMETERS_TYPE,
    PROPERTY_TYPE,
    CostContext,
    CostType,
    ErrorAnswer,
    ErrorCode,
    ErrorMeta,
    Meta,
    VersionTag,
)
from controller.common.errors import AltoError

HOST_PROPERTY: Final = "priv:millrace-host"
SWITCH_PROPERTY: Final = "priv:millrace-switch"


@dataclass(frozen=True, slots=True)
class Table:
    """Costs in an answer, from names to names, where `present`; `tag` changes with their values."""

    metric: Metric
    srcs: Sequence[str]
    dsts: Sequence[str]
    values: Numbers
    present: Flags
    context: CostContext

    @property
    def cost_type(self) -> CostType:
        """The cost type with its context."""
        return msgspec.structs.replace(self.metric.cost_type, cost_context=self.context)

    def tag(self) -> str:
        """Return a digest of the values and of whether they are measured; ages are not part of it."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.values).tobytes(), digest_size=16)
        digest.update(np.packbits(self.present).tobytes())
        digest.update(msgspec.json.encode((self.srcs, self.dsts, self.context.cost_source)))
        return digest.hexdigest()

    def rows(self) -> dict[str, msgspec.Raw]:
        """Return the costs by source and destination, without sources that have none.

        Works row by row, so that other threads keep running while a large map is written.
        """
        whole: list[bool] = np.all(self.present, axis=1).tolist()
        names = self.dsts
        costs: dict[str, msgspec.Raw] = {}
        for index, (src, row) in enumerate(zip(self.srcs, self.values, strict=True)):
            if whole[index]:
                costs[src] = _written(dict(zip(names, row.tolist(), strict=True)))
            elif self.present[index].any():
                present, values = np.flatnonzero(self.present[index]).tolist(), row.tolist()
                costs[src] = _written({names[column]: values[column] for column in present})
        return costs


def _written(row: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(row))


def cost_map(table: Table, network_map: NetworkMap, tag: str, resource_id: str) -> bytes:
    """Return a cost map, section 11.2.3.6."""
    meta = Meta(
        vtag=VersionTag(resource_id=resource_id, tag=tag),
        dependent_vtags=(network_map.vtag,),
        cost_type=table.cost_type,
    )
    return msgspec.json.encode({"meta": meta, "cost-map": table.rows()})


def endpoint_costs(table: Table, tag: str) -> bytes:
    """Return costs between addresses, section 11.5.1.6."""
    meta = Meta(vtag=VersionTag(resource_id="endpoint-cost", tag=tag), cost_type=table.cost_type)
    return msgspec.json.encode({"meta": meta, "endpoint-cost-map": table.rows()})


def network_map(network: NetworkMap, pids: Sequence[str] = (), address_types: Sequence[str] = ()) -> bytes:
    """Return a network map or a part of one, sections 11.2.1.6 and 11.3.1.6; unknown PIDs are ignored."""
    groups: Mapping[str, Group] = network.groups
    if pids:
        groups = {pid: groups[pid] for pid in pids if pid in groups}
    if address_types:
        groups = {
            pid: {kind: prefixes for kind, prefixes in group.items() if kind in address_types}
            for pid, group in groups.items()
        }
    return msgspec.json.encode({"meta": Meta(vtag=network.vtag), "network-map": groups})


def error(refusal: AltoError) -> bytes:
    """Return a refusal, section 8.5."""
    meta = ErrorMeta(
        code=ErrorCode(refusal.code), syntax_error=refusal.syntax_error, field=refusal.field, value=refusal.value
    )
    return msgspec.json.encode(ErrorAnswer(meta=meta))


def cost_map_id(network: str, metric: Metric) -> str:
    """Return a cost map's resource id."""
    return f"{network}-{metric.type_name}"


def directory(maps: Mapping[str, NetworkMap], base: str) -> bytes:
    """Return the information resource directory, section 9.2; `base` is the prefix of resource URIs."""
    resources: dict[str, dict[str, Any]] = {}
    names = [metric.type_name for metric in METRICS]
    for network in maps:
        resources[network] = _entry(base, f"networkmap/{network}", NETWORK_MAP_TYPE)
        resources[f"{network}-filtered"] = _entry(
            base, f"networkmap/{network}/filtered", NETWORK_MAP_TYPE, NETWORK_FILTER_TYPE, uses=(network,)
        )
        for metric in METRICS:
            resources[cost_map_id(network, metric)] = _entry(
                base,
                f"costmap/{network}/{metric.type_name}",
                COST_MAP_TYPE,
                capabilities={"cost-type-names": [metric.type_name]},
                uses=(network,),
            )
        resources[f"{network}-costs-filtered"] = _entry(
            base,
            f"costmap/{network}/filtered",
            COST_MAP_TYPE,
            COST_FILTER_TYPE,
            capabilities={"cost-type-names": names, "cost-constraints": True},
            uses=(network,),
        )
    resources["endpoint-cost"] = _entry(
        base,
        "endpointcost/lookup",
        ENDPOINT_COST_TYPE,
        ENDPOINT_COST_PARAMETERS_TYPE,
        capabilities={"cost-type-names": names, "cost-constraints": True},
    )
    resources["endpoint-properties"] = _entry(
        base,
        "endpointprop/lookup",
        PROPERTY_TYPE,
        PROPERTY_PARAMETERS_TYPE,
        capabilities={"prop-types": [*(f"{network}.pid" for network in maps), HOST_PROPERTY, SWITCH_PROPERTY]},
        uses=tuple(maps),
    )
    cost_types = {metric.type_name: metric.cost_type for metric in METRICS}
    meta = {"cost-types": cost_types, "default-alto-network-map": HOSTS}
    return msgspec.json.encode({"meta": meta, "resources": resources})


def _entry(
    base: str,
    path: str,
    media_type: str,
    accepts: str | None = None,
    *,
    capabilities: dict[str, Any] | None = None,
    uses: tuple[str, ...] = (),
) -> dict[str, Any]:
    entry = {
        "uri": f"{base}/{path}",
        "media-type": media_type,
        "accepts": accepts,
        "capabilities": capabilities,
        "uses": uses,
    }
    return {name: value for name, value in entry.items() if value}
