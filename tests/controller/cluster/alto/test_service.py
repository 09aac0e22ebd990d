"""Answers of the ALTO server, read by schemas from RFC 7285 and RFC 9439 and compared with the cost map behind them.

The schemas refuse what is not in the RFCs, but what these let a server add: `priv:` names, `description`, a `vtag`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from typing import Annotated, Any, TypeVar

import msgspec
import pytest

from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.cluster.alto.metrics import METRICS
from controller.cluster.alto.network_maps import pid_of
from controller.cluster.alto.service import AltoService, Answer
from controller.cluster.cost_map import CostMap, CostModel
from controller.cluster.cost_map.live import LiveCosts
from controller.common.errors import AltoError
from dataplane.topology.values import LinkKey
from tests.controller.cluster.cost_map.fabrics import fabric, link_state, route_set, snapshot

T = TypeVar("T")
MS = 1_000_000

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9:@_-]{1,64}$")]
Tag = Annotated[str, msgspec.Meta(pattern=r"^[\x21-\x7e]{1,64}$")]
Cost = Annotated[float, msgspec.Meta(ge=0)]


class Object(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """An object with exactly its declared members."""


class Vtag(Object, frozen=True):
    resource_id: Name
    tag: Tag


class Context(Object, frozen=True):
    cost_source: Annotated[str, msgspec.Meta(pattern="^(nominal|sla|estimation)$")]
    parameters: dict[str, Any]


class CostType(Object, frozen=True):
    cost_mode: Annotated[str, msgspec.Meta(pattern="^(numerical|ordinal)$")]
    cost_metric: str
    description: str
    cost_context: Context | None = None


class MapMeta(Object, frozen=True):
    vtag: Vtag


class NetworkMap(Object, frozen=True):
    meta: MapMeta
    network_map: dict[Name, dict[str, list[str]]]


class CostMeta(Object, frozen=True):
    vtag: Vtag
    dependent_vtags: tuple[Vtag]
    cost_type: CostType


class CostTable(Object, frozen=True):
    meta: CostMeta
    cost_map: dict[Name, dict[Name, Cost]]


class EndpointCostMeta(Object, frozen=True):
    vtag: Vtag
    cost_type: CostType


class EndpointCosts(Object, frozen=True):
    meta: EndpointCostMeta
    endpoint_cost_map: dict[str, dict[str, Cost]]


class Properties(Object, frozen=True):
    meta: dict[str, tuple[Vtag, ...]]
    endpoint_properties: dict[str, dict[str, str]]


class Resource(Object, frozen=True):
    uri: str
    media_type: Annotated[str, msgspec.Meta(pattern=r"^application/alto-[a-z]+\+json$")]
    accepts: Annotated[str, msgspec.Meta(pattern=r"^application/alto-[a-z]+\+json$")] | None = None
    capabilities: dict[str, Any] = {}
    uses: tuple[Name, ...] = ()


class DirectoryMeta(Object, frozen=True):
    cost_types: dict[Name, CostType]
    default_alto_network_map: Name


class Directory(Object, frozen=True):
    meta: DirectoryMeta
    resources: dict[Name, Resource]


class Source:
    """A source with the test's map."""

    def __init__(self, live: LiveCosts) -> None:
        self.live = live

    def current(self) -> LiveCosts:
        return self.live


MODEL = CostModel(fabric("fat-tree:k=4"))


@pytest.fixture
def source() -> Source:
    rng = random.Random(11)
    costs = CostMap.of(MODEL, snapshot(MODEL.topology, rng), route_set(MODEL.topology, rng))
    return Source(LiveCosts(costs, 0, 1))


def service_of(source: Source, most_pairs: int = 1000) -> AltoService:
    return AltoService(source.live.costs.model, source, lambda: 3 * MS, base="http://a:1", most_pairs=most_pairs)


def body_of(answer: Answer | None, schema: type[T]) -> T:
    assert answer is not None
    return msgspec.json.decode(answer.body, type=schema)


def asked(**fields: object) -> bytes:
    return json.dumps({name.replace("_", "-"): value for name, value in fields.items()}).encode()


def cost_type(metric: str, mode: str = "numerical") -> dict[str, str]:
    return {"cost-mode": mode, "cost-metric": metric}


def test_every_directory_resource_exists_as_described(source: Source) -> None:
    service = service_of(source)
    directory = body_of(service.directory(), Directory)
    assert directory.resources[directory.meta.default_alto_network_map].media_type.endswith("alto-networkmap+json")
    types = directory.meta.cost_types
    for name, resource in directory.resources.items():
        assert set(resource.uses) <= directory.resources.keys()
        assert set(resource.capabilities.get("cost-type-names", ())) <= types.keys()
        path = resource.uri.removeprefix("http://a:1/").split("/")
        if path[0] == "costmap" and resource.accepts is None:
            [type_name] = resource.capabilities["cost-type-names"]
            meta = body_of(service.cost_map(path[1], path[2]), CostTable).meta
            assert (meta.cost_type.cost_mode, meta.cost_type.cost_metric) == (
                types[type_name].cost_mode,
                types[type_name].cost_metric,
            )
            assert meta.vtag.resource_id == name
            assert meta.dependent_vtags[0] == body_of(service.network_map(path[1]), NetworkMap).meta.vtag


def test_network_maps_have_every_host_once(source: Source) -> None:
    service, topology = service_of(source), MODEL.topology
    hosts = body_of(service.network_map("hosts"), NetworkMap).network_map
    assert hosts.keys() == set(MODEL.hosts)
    for name, group in hosts.items():
        assert group["ipv4"] == [f"{topology.host[name].ipv4}/32"]
    grouped = body_of(service.network_map("switches"), NetworkMap).network_map
    assert grouped.keys() == {end.node for end in (topology.attachment[name] for name in MODEL.hosts)}
    prefixes = sorted(ip_network(prefix) for group in grouped.values() for prefix in group["ipv4"])
    assert prefixes == sorted(ip_network(prefix) for group in hosts.values() for prefix in group["ipv4"])


def expected(costs: CostMap, metric: str, src: str, dst: str) -> float | None:
    pair = costs.cost(src, dst)
    name = metric.partition(":")[0]
    if name in {"routingcost", "delay-ow"}:
        return pair.delay_ns / 1000
    if name == "lossrate":
        return pair.loss_ppb / 1e7
    return pair.available_bps // 8 if src != dst else None


@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric.mode == "numerical" and metric.figure])
def test_costs_are_the_cost_maps_in_the_rfcs_units(source: Source, metric: Any) -> None:
    table = body_of(service_of(source).cost_map("hosts", metric.type_name), CostTable).cost_map
    for src in MODEL.hosts:
        for dst in MODEL.hosts:
            value = expected(source.live.costs, metric.name, src, dst)
            assert table[src].get(dst) == (None if value is None else pytest.approx(value))


def test_ranks_order_pairs_as_delays_do(source: Source) -> None:
    service = service_of(source)
    ranks = body_of(service.cost_map("hosts", "routingcost-ord"), CostTable).cost_map
    delays = body_of(service.cost_map("hosts", "routingcost-num"), CostTable).cost_map
    pairs = [(delays[src][dst], ranks[src][dst]) for src in MODEL.hosts for dst in MODEL.hosts]
    assert min(rank for _, rank in pairs) == 1
    by_delay = dict(pairs)
    assert sorted(by_delay.values()) == [by_delay[delay] for delay in sorted(by_delay)]
    assert all(by_delay[delay] == rank for delay, rank in pairs)


def test_between_switches_no_access_link_counts() -> None:
    costs = CostMap.of(MODEL, Snapshot(0, {}, {}, {}))
    table = body_of(service_of(Source(LiveCosts(costs, 0, 1))).cost_map("switches", "delay-ow-mean-num"), CostTable)
    host, peer = MODEL.hosts[0], MODEL.hosts[-1]
    edges = [MODEL.topology.attachment[name].node for name in (host, peer)]
    access = MODEL.topology.directed_links[LinkKey(host, edges[0])].delay_ns
    assert table.cost_map[edges[0]][edges[1]] == (costs.cost(host, peer).delay_ns - 2 * access) / 1000
    assert table.cost_map[edges[0]][edges[0]] == 0


def test_answers_state_basis_and_age(source: Source) -> None:
    service = service_of(source)
    context = body_of(service.cost_map("hosts", "delay-ow-num"), CostTable).meta.cost_type.cost_context
    assert context is not None
    assert context.cost_source == "estimation"
    parameters = context.parameters
    pairs = [source.live.costs.cost(a, b) for a in MODEL.hosts for b in MODEL.hosts if a != b]
    for name, basis in (("measured", "measured"), ("partly-measured", "partly measured"), ("nominal", "nominal")):
        assert parameters[f"pairs-{name}"] == sum(pair.delay_basis == basis for pair in pairs), name
    assert parameters["state-age-ms"] == 3
    assert parameters["oldest-figure-age-ms"] == pytest.approx(max(pair.age_ns or 0 for pair in pairs) / MS + 3)
    marks = body_of(service.cost_map("hosts", "priv-millrace-delay-basis-num"), CostTable).cost_map
    places = ("nominal", "partly measured", "measured")
    assert all(places[int(marks[pair.src][pair.dst])] == pair.delay_basis for pair in pairs)
    idle = service_of(Source(LiveCosts(CostMap.of(MODEL, Snapshot(0, {}, {}, {})), 0, 1)))
    context = body_of(idle.cost_map("hosts", "delay-ow-num"), CostTable).meta.cost_type.cost_context
    assert context is not None
    assert context.cost_source == "nominal"


def test_tags_change_with_the_content_only(source: Source) -> None:
    service = service_of(source)
    first = service.cost_map("hosts", "delay-ow-num")
    assert first is not None
    assert service.cost_map("hosts", "delay-ow-num") is first
    older = source.live.costs
    source.live = LiveCosts(older.with_links([]), 1 * MS, 2)
    same = service.cost_map("hosts", "delay-ow-num")
    assert same is not None
    assert (same.tag, same.age_ns) == (first.tag, 2 * MS)
    key = MODEL.table.links[0]
    state = replace(link_state(MODEL.topology, key, random.Random(2)), age_ns=0, delay_mean_ns=123_456_789)
    source.live = LiveCosts(older.with_links([state]), 2 * MS, 3)
    changed = service.cost_map("hosts", "delay-ow-num")
    assert changed is not None
    assert changed.tag != first.tag
    other = network_tag(CostModel(fabric("fat-tree:k=2")))
    assert network_tag(MODEL) == network_tag(CostModel(fabric("fat-tree:k=4"))) != other


def network_tag(model: CostModel) -> str:
    costs = CostMap.of(model, Snapshot(0, {}, {}, {}))
    return body_of(service_of(Source(LiveCosts(costs, 0, 1))).network_map("hosts"), NetworkMap).meta.vtag.tag


def test_parts_of_maps(source: Source) -> None:
    service = service_of(source)
    whole = body_of(service.cost_map("hosts", "bw-available-num"), CostTable).cost_map
    body = asked(cost_type=cost_type("bw-available"), pids={"srcs": ["h1", "h9", "nobody"], "dsts": ["h2"]})
    part = body_of(service.filtered_cost_map("hosts", body), CostTable)
    assert part.cost_map == {src: {"h2": whole[src]["h2"]} for src in ("h1", "h9")}
    limit = sorted(whole["h1"].values())[7]
    body = asked(cost_type=cost_type("bw-available"), constraints=[f"ge {limit}"], pids={"srcs": ["h1"], "dsts": []})
    part = body_of(service.filtered_cost_map("hosts", body), CostTable)
    assert part.cost_map["h1"] == {dst: value for dst, value in whole["h1"].items() if value >= limit}
    everything = body_of(service.filtered_cost_map("hosts", asked(cost_type=cost_type("bw-available"))), CostTable)
    assert everything.cost_map == whole
    maps = body_of(service.filtered_network_map("hosts", asked(pids=["h1", "nobody"])), NetworkMap)
    assert maps.network_map.keys() == {"h1"}
    body = asked(pids=[], address_types=["ipv6"])
    assert all(
        "ipv4" not in group
        for group in body_of(service.filtered_network_map("hosts", body), NetworkMap).network_map.values()
    )


def test_costs_between_addresses(source: Source) -> None:
    service, topology = service_of(source), MODEL.topology
    source_address, other = (f"ipv4:{topology.host[name].ipv4}" for name in ("h1", "h16"))
    body = asked(
        cost_type=cost_type("delay-ow:mean"), endpoints={"srcs": [source_address, "ipv4:192.0.2.1"], "dsts": [other]}
    )
    table = body_of(service.endpoint_costs(body, None), EndpointCosts).endpoint_cost_map
    assert table == {source_address: {other: pytest.approx(source.live.costs.cost("h1", "h16").delay_ns / 1000)}}
    body = asked(cost_type=cost_type("delay-ow:mean"), endpoints={"dsts": [other]})
    assert body_of(service.endpoint_costs(body, topology.host["h1"].ipv4), EndpointCosts).endpoint_cost_map == table
    with pytest.raises(AltoError, match="E_MISSING_FIELD: endpoints/srcs"):
        service.endpoint_costs(body, None)


def test_properties_of_addresses(source: Source) -> None:
    service, topology = service_of(source), MODEL.topology
    names = ["hosts.pid", "switches.pid", "priv:millrace-host", "priv:millrace-switch"]
    address = f"ipv4:{topology.host['h5'].ipv4}"
    properties = body_of(
        service.endpoint_properties(asked(properties=names, endpoints=[address, "ipv4:192.0.2.1"])), Properties
    )
    switch = topology.attachment["h5"].node
    values = dict(zip(names, ("h5", switch, "h5", switch), strict=True))
    assert properties.endpoint_properties == {address: values}
    assert {tag.resource_id for tag in properties.meta["dependent-vtags"]} == {"hosts", "switches"}


COST, ENDPOINT, NETWORK, PROPERTY = "filtered_cost_map", "endpoint_costs", "filtered_network_map", "endpoint_properties"


@pytest.mark.parametrize(
    ("service_name", "body", "code", "field", "value"),
    [
        (COST, b'{"cost-type": ', "E_SYNTAX", None, None),
        (COST, b"\xff", "E_SYNTAX", None, None),
        (COST, b"{}", "E_MISSING_FIELD", "cost-type", None),
        (COST, b'{"cost-type": {"cost-mode": "numerical"}}', "E_MISSING_FIELD", "cost-type/cost-metric", None),
        (
            COST,
            b'{"cost-type": {"cost-mode": 7, "cost-metric": "x"}}',
            "E_INVALID_FIELD_TYPE",
            "cost-type/cost-mode",
            None,
        ),
        (COST, asked(cost_type=cost_type("hops")), "E_INVALID_FIELD_VALUE", "cost-type/cost-metric", "hops"),
        (
            COST,
            asked(cost_type=cost_type("lossrate", "ordinal")),
            "E_INVALID_FIELD_VALUE",
            "cost-type/cost-mode",
            "ordinal",
        ),
        (
            COST,
            asked(cost_type=cost_type("lossrate"), constraints=["ne 5"]),
            "E_INVALID_FIELD_VALUE",
            "constraints",
            "ne 5",
        ),
        (
            COST,
            asked(cost_type=cost_type("lossrate"), constraints=["gt nan"]),
            "E_INVALID_FIELD_VALUE",
            "constraints",
            "gt nan",
        ),
        (COST, asked(cost_type=cost_type("lossrate"), pids={"srcs": "h1"}), "E_INVALID_FIELD_TYPE", "pids/srcs", None),
        (NETWORK, b"{}", "E_MISSING_FIELD", "pids", None),
        (NETWORK, asked(pids=[], address_types=["mac"]), "E_INVALID_FIELD_VALUE", "address-types", "mac"),
        (ENDPOINT, asked(cost_type=cost_type("lossrate"), endpoints={}), "E_INVALID_FIELD_VALUE", "endpoints", ""),
        (
            ENDPOINT,
            asked(cost_type=cost_type("lossrate"), endpoints={"srcs": ["ipv4:300.1.1.1"], "dsts": []}),
            "E_INVALID_FIELD_VALUE",
            "endpoints/srcs",
            "ipv4:300.1.1.1",
        ),
        (
            PROPERTY,
            asked(properties=["nowhere.pid"], endpoints=[]),
            "E_INVALID_FIELD_VALUE",
            "properties",
            "nowhere.pid",
        ),
        (PROPERTY, asked(properties=[], endpoints=["10.0.0.1"]), "E_INVALID_FIELD_VALUE", "endpoints", "10.0.0.1"),
        (PROPERTY, b'{"nobody-knows": ' + b"[" * 100_000, "E_SYNTAX", None, None),
    ],
)
def test_invalid_requests_name_place_and_reason(
    source: Source, service_name: str, body: bytes, code: str, field: str | None, value: str | None
) -> None:
    service = service_of(source)
    calls: dict[str, Callable[[], object]] = {
        COST: lambda: service.filtered_cost_map("hosts", body),
        NETWORK: lambda: service.filtered_network_map("hosts", body),
        ENDPOINT: lambda: service.endpoint_costs(body, None),
        PROPERTY: lambda: service.endpoint_properties(body),
    }
    with pytest.raises(AltoError) as refused:
        calls[service_name]()
    assert (refused.value.code, refused.value.field, refused.value.value) == (code, field, value)


def test_more_pairs_than_one_may_ask_for_are_refused(source: Source) -> None:
    service = service_of(source, most_pairs=10)
    with pytest.raises(AltoError, match="289 pairs; at most 10"):
        service.cost_map("hosts", "delay-ow-num")
    with pytest.raises(AltoError, match="17 pairs; at most 10"):
        service.filtered_cost_map("hosts", asked(cost_type=cost_type("delay-ow"), pids={"srcs": ["h1"]}))


def test_unconnected_pairs_have_only_loss() -> None:
    ring = CostModel(fabric("ring:switches=3,hosts=1"))
    dead = {key: LinkStatus(LinkCondition.DOWN, 0) for key in ring.table.links if "s1" in {key.src, key.dst}}
    costs = CostMap.of(ring, Snapshot(0, {}, {}, {}, statuses=dead))
    service = service_of(Source(LiveCosts(costs, 0, 1)))
    for name, value in (("delay-ow-num", {}), ("bw-available-num", {}), ("lossrate-num", {"h2": 100.0})):
        row = body_of(service.cost_map("hosts", name), CostTable).cost_map.get("h1", {})
        assert {dst: cost for dst, cost in row.items() if dst == "h2"} == value


def test_names_of_nodes_become_pids_of_their_own() -> None:
    assert pid_of("rack-1:h_2") == "rack-1:h_2"
    assert pid_of("a.b") == "a@2eb"
    assert pid_of("a@2eb") == "a@402eb"
    assert pid_of("ü") == "@c3@bc"
    long = [pid_of("x" * 80 + end) for end in "ab"]
    assert len(set(long)) == 2
    assert all(len(name) == 64 for name in long)
