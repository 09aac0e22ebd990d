"""A statement's sums are added up by a switch of a kernel fabric: workers are processes in their hosts' namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.values import Plan, Run
from dataplane.fabric.kernel import namespaces
from tests.integration.job_fabric import JobFabric

pytestmark = pytest.mark.root
HOSTS, PORT = ("h1", "h2", "h3"), 7700
ROWS = 3_000


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(1)
    values = {
        "g": [None if key == 4 else int(key) for key in rng.integers(0, 5, ROWS)],
        "v": rng.integers(-(1 << 51), 1 << 51, ROWS),
        "w": rng.random(ROWS),
    }
    return {"t": pa.table(values)}


@pytest.fixture(scope="module")
def fabric() -> Iterator[JobFabric]:
    """Start a star of three hosts whose switch adds up."""
    with JobFabric(len(HOSTS)) as fabric:
        yield fabric


def rows_of(fabric: JobFabric, plan: Plan, job: str) -> tuple[Run | str, list[tuple[object, ...]]]:
    """Run a plan over the fabric, by its switch if possible, and return its rows in order."""
    places = [(fabric.fabric.namespace(host), f"{fabric.topology.host[host].ipv4}:{PORT}") for host in HOSTS]
    with LocalWorkers(len(HOSTS), places) as workers:
        client = places[0][0]
        connecting = lambda make: namespaces.call(client, make)  # noqa: E731
        with Cluster(workers.addresses, workers.secret, plan, connecting=connecting) as cluster:
            cluster.load(tables())
            outcome = cluster.run_by_switch(fabric.address, job, HOSTS)
            if isinstance(outcome, str):
                cluster.run(2)
            table = cluster.result()
    return outcome, sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=str)


def expected(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect(":memory:") as connection:
        connection.register("t", tables()["t"])
        return sorted(connection.sql(sql).fetchall(), key=str)


def test_sums_of_whole_numbers_are_exact(fabric: JobFabric) -> None:
    sql = "SELECT g, sum(v), count(*), avg(v) FROM t WHERE w > 0.1 GROUP BY g"
    plan = plan_of_statement(sql, tables())
    outcome, rows = rows_of(fabric, plan, "exact")
    assert isinstance(outcome, Run), outcome
    assert [row[:3] for row in rows] == [row[:3] for row in expected(sql)]


def test_other_sums_go_up_the_tree(fabric: JobFabric) -> None:
    sql = "SELECT g, sum(w) FROM t GROUP BY g"
    outcome, rows = rows_of(fabric, plan_of_statement(sql, tables()), "floats")
    assert outcome == "a sum is double: switches add up whole numbers"
    for (group, total), (own_group, own_total) in zip(rows, expected(sql), strict=True):
        assert group == own_group
        assert total == pytest.approx(own_total)
