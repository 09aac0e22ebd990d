"""A statement over processes on a fabric's hosts, through its switch: exactly what one DuckDB over all the data has."""

from __future__ import annotations

import os
from functools import partial

import pytest

from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.starting import LocalWorkers
from dataplane.fabric.kernel import namespaces
from tests.controller.acceleration.running.tables import of_one_duckdb, rows_of, small_tables
from tests.integration.allreduce_namespaces import AggregationFabric

SQL = "SELECT place, sum(value) AS s, count(*) AS c FROM data JOIN places USING (place) GROUP BY place"


@pytest.mark.root
def test_statement_runs_on_fabric_hosts_over_a_reduction_tree() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    tables = small_tables(5000)
    with AggregationFabric(workers=4, rate_bps=100_000_000) as world:
        *hosts, asking = world.hosts
        places = [(world.fabric.namespace(host), f"{world.topology.host[host].ipv4}:7700") for host in hosts]
        connecting = partial(namespaces.call, world.fabric.namespace(asking))
        with LocalWorkers(len(hosts), places) as workers:
            assert workers.addresses == tuple(address for _, address in places)
            plan = plan_of_statement(SQL, tables, "data")
            with Cluster(workers.addresses, workers.secret, plan, connecting=connecting) as cluster:
                cluster.load(tables)
                before = world.wire(hosts[0])
                outcome = cluster.run(2)
                received = world.wire(hosts[0]) - before
                result = cluster.result()
    assert rows_of(result, is_ordered=False) == rows_of(of_one_duckdb(SQL, tables), is_ordered=False)
    assert received.received_bytes >= sum(worker.sent_bytes for worker in outcome.workers[1:3])
