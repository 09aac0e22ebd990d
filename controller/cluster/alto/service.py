"""The ALTO server, independent of transport: requests as bytes in, answers as bytes out; no socket, no clock.

Whole cost maps are cached as bytes while the cost map that they were made from is current.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from threading import Lock
from typing import Final, Protocol

import msgspec
import numpy as np

from controller.cluster.alto import answers
from controller.cluster.alto.answers import HOST_PROPERTY, SWITCH_PROPERTY, Table
from controller.cluster.alto.metrics import BY_TYPE, METRICS, Metric
from controller.cluster.alto.network_maps import HOSTS, NetworkMap, network_maps
from controller.cluster.alto.requests import Constraint, address_of, constraints_of, read, typed
from controller.cluster.alto.values import (
    COST_MAP_TYPE,
    DIRECTORY_TYPE,
    ENDPOINT_COST_TYPE,
    NETWORK_MAP_TYPE,
    PROPERTY_TYPE,
    AskedCostType,
    CostFilter,
    EndpointCostRequest,
    ErrorCode,
    Meta,
    NetworkFilter,
    PropertyRequest,
)
from controller.cluster.cost_map import CostModel
from controller.cluster.cost_map.live import LiveCosts
from controller.cluster.cost_map.pairs import PairColumns
from controller.common.errors import AltoError

Address = IPv4Address | IPv6Address

_KEPT_BYTES: Final = 64 << 20
"""Total size of cached cost maps."""
_BY_NAME: Final = {metric.type_name: metric for metric in METRICS}


class CostSource(Protocol):
    """Source of the current map: `controller.cluster.network_state.follower.CostMapFollower`."""

    def current(self) -> LiveCosts:
        """Return the newest map; raise CostMapError if there is none, or none recent enough."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its media type, the version of its content (None: unversioned) and the age of its figures."""

    body: bytes
    media_type: str
    tag: str | None = None
    age_ns: int | None = None


class AltoService:
    """Answers requests about one topology; thread-safe; see the module's docstring."""

    def __init__(
        self, model: CostModel, source: CostSource, now_ns: Callable[[], int], *, base: str, most_pairs: int
    ) -> None:
        self.maps = network_maps(model)
        self._model, self._source, self._now_ns, self._most_pairs = model, source, now_ns, most_pairs
        body = answers.directory(self.maps, base)
        self._directory = Answer(body, DIRECTORY_TYPE)
        self._bodies = {name: answers.network_map(network) for name, network in self.maps.items()}
        self._kept: OrderedDict[tuple[str, str], tuple[int, Answer]] = OrderedDict()
        self._lock = Lock()

    def directory(self) -> Answer:
        """Return the information resource directory."""
        return self._directory

    def network_map(self, network: str) -> Answer | None:
        """Return a network map, None if it does not exist."""
        pid_map = self.maps.get(network)
        return None if pid_map is None else Answer(self._bodies[network], NETWORK_MAP_TYPE, pid_map.vtag.tag)

    def filtered_network_map(self, network: str, body: bytes) -> Answer | None:
        """Return a part of a network map; raise AltoError."""
        pid_map = self.maps.get(network)
        if pid_map is None:
            return None
        request = read(body, NetworkFilter)
        for kind in request.address_types:
            if kind not in {"ipv4", "ipv6"}:
                raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="address-types", value=kind)
        return Answer(answers.network_map(pid_map, request.pids, request.address_types), NETWORK_MAP_TYPE)

    def cost_map(self, network: str, type_name: str) -> Answer | None:
        """Return a whole cost map, None if it does not exist; raise AltoError, CostMapError."""
        pid_map, metric = self.maps.get(network), _BY_NAME.get(type_name)
        if pid_map is None or metric is None:
            return None
        live = self._source.current()
        key = network, type_name
        with self._lock:
            version, kept = self._kept.get(key, (0, None))
        if kept is not None and version == live.version:
            return kept
        # Build outside the lock: two requests may build it twice, but no other request waits for them.
        self._check_pairs(len(pid_map.pids) ** 2, "pids")
        table = self._table(live, pid_map, metric, None, None)
        tag = table.tag()
        body = answers.cost_map(table, pid_map, tag, answers.cost_map_id(network, metric))
        answer = Answer(body, COST_MAP_TYPE, tag, live.age_ns(self._now_ns()))
        self._keep(key, live.version, answer)
        return answer

    def filtered_cost_map(self, network: str, body: bytes) -> Answer | None:
        """Return a part of a cost map; raise AltoError, CostMapError."""
        pid_map = self.maps.get(network)
        if pid_map is None:
            return None
        request = read(body, CostFilter)
        metric, constraints = _metric(request.cost_type), constraints_of(request.constraints)
        srcs, dsts = (_known(pid_map, names) for names in (request.pids.srcs, request.pids.dsts))
        self._check_pairs(_count(pid_map, srcs) * _count(pid_map, dsts), "pids")
        live = self._source.current()
        table = _constrained(self._table(live, pid_map, metric, srcs, dsts), constraints)
        tag = table.tag()
        content = answers.cost_map(table, pid_map, tag, f"{network}-costs-filtered")
        return Answer(content, COST_MAP_TYPE, tag, live.age_ns(self._now_ns()))

    def endpoint_costs(self, body: bytes, client: Address | None) -> Answer:
        """Return costs between addresses; an empty list means the client's own. Raise AltoError, CostMapError."""
        request = read(body, EndpointCostRequest)
        metric, constraints = _metric(request.cost_type), constraints_of(request.constraints)
        if not request.endpoints.srcs and not request.endpoints.dsts:
            raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="endpoints", value="")
        hosts = self.maps[HOSTS]
        srcs = _endpoints(hosts, request.endpoints.srcs, "endpoints/srcs", client)
        dsts = _endpoints(hosts, request.endpoints.dsts, "endpoints/dsts", client)
        self._check_pairs(len(srcs) * len(dsts), "endpoints")
        live = self._source.current()
        costs = self._table(live, hosts, metric, list(srcs.values()), list(dsts.values()))
        table = _constrained(replace(costs, srcs=list(srcs), dsts=list(dsts)), constraints)
        tag = table.tag()
        return Answer(answers.endpoint_costs(table, tag), ENDPOINT_COST_TYPE, tag, live.age_ns(self._now_ns()))

    def endpoint_properties(self, body: bytes) -> Answer:
        """Return properties of addresses, without those that are not hosts; raise AltoError."""
        request = read(body, PropertyRequest)
        readers = {name: self._property(name) for name in request.properties}
        self._check_pairs(len(readers) * len(request.endpoints), "endpoints")
        places = self.maps[HOSTS].place_of
        properties = {}
        for text in request.endpoints:
            host = places.get(address_of(text, "endpoints"))
            if host is not None:
                properties[text] = {name: reader(host) for name, reader in readers.items()}
        used = tuple(self.maps[name.partition(".")[0]].vtag for name in readers if name.endswith(".pid"))
        meta = Meta(dependent_vtags=used)
        return Answer(msgspec.json.encode({"meta": meta, "endpoint-properties": properties}), PROPERTY_TYPE)

    def _property(self, name: str) -> Callable[[int], str]:
        """Return the getter of a property, which takes a host's index."""
        network, _, rest = name.partition(".")
        if rest == "pid" and network in self.maps:
            return partial(self._pid, self.maps[network])
        if name == HOST_PROPERTY:
            return self._model.hosts.__getitem__
        if name == SWITCH_PROPERTY:
            return lambda host: self._model.table.switches[int(self._model.host_switch[host])]
        raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="properties", value=name)

    def _pid(self, network: NetworkMap, host: int) -> str:
        return network.pids[host if network.resource_id == HOSTS else int(self._model.host_destination[host])]

    def _table(
        self, live: LiveCosts, network: NetworkMap, metric: Metric, srcs: list[int] | None, dsts: list[int] | None
    ) -> Table:
        """Return costs between PIDs by index, None: all."""
        pairs, age_ns = network.pairs(live.costs), live.age_ns(self._now_ns())
        if srcs is not None or dsts is not None:
            every = range(len(network.pids))
            pairs = _part(pairs, every if srcs is None else srcs, every if dsts is None else dsts)
        values, present = metric.values(pairs)
        names = [
            network.pids if places is None else [network.pids[index] for index in places] for places in (srcs, dsts)
        ]
        return Table(metric, names[0], names[1], values, present, metric.context(pairs, age_ns))

    def _check_pairs(self, pairs: int, field: str) -> None:
        if pairs > self._most_pairs:
            raise AltoError(
                ErrorCode.INVALID_FIELD_VALUE, field=field, value=f"{pairs} pairs; at most {self._most_pairs}"
            )

    def _keep(self, key: tuple[str, str], version: int, answer: Answer) -> None:
        with self._lock:
            self._kept[key] = version, answer
            self._kept.move_to_end(key)
            while sum(len(kept.body) for _, kept in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)


def _metric(request: AskedCostType) -> Metric:
    """Return the metric of a cost type; raise AltoError for an unknown one."""
    modes = {mode for mode, name in BY_TYPE if name == request.cost_metric}
    if not modes:
        raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="cost-type/cost-metric", value=request.cost_metric)
    if request.cost_mode not in modes:
        raise AltoError(ErrorCode.INVALID_FIELD_VALUE, field="cost-type/cost-mode", value=request.cost_mode)
    return BY_TYPE[request.cost_mode, request.cost_metric]


def _known(network: NetworkMap, pids: Sequence[str]) -> list[int] | None:
    """Return the indices of PIDs, None for all; unknown PIDs are ignored."""
    return [network.numbers[pid] for pid in dict.fromkeys(pids) if pid in network.numbers] if pids else None


def _count(network: NetworkMap, places: list[int] | None) -> int:
    return len(network.pids) if places is None else len(places)


def _endpoints(hosts: NetworkMap, texts: Sequence[str], field: str, client: Address | None) -> dict[str, int]:
    """Return endpoints as written with their hosts' indices, without addresses that belong to no host."""
    if not texts:
        if client is None:
            raise AltoError(ErrorCode.MISSING_FIELD, field=field)
        texts = (typed(client),)
    places = {text: hosts.place_of.get(address_of(text, field)) for text in texts}
    return {text: host for text, host in places.items() if host is not None}


def _part(pairs: PairColumns, srcs: Sequence[int], dsts: Sequence[int]) -> PairColumns:
    chosen = np.ix_(np.array(srcs, np.intp), np.array(dsts, np.intp))
    return PairColumns(
        pairs.delay_ns[chosen],
        pairs.available_bps[chosen],
        pairs.loss_ppb[chosen],
        pairs.age_ns[chosen],
        pairs.measured[chosen],
    )


def _constrained(table: Table, constraints: Sequence[Constraint]) -> Table:
    """Return only the costs that pass every test."""
    present = table.present
    for constraint in constraints:
        present = present & constraint.passed_by(table.values)
    return replace(table, present=present)
