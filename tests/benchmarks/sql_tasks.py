"""SQL tasks as planned at submission: which are, and how far the expected times are from the measured ones.

Usage: python -m tests.benchmarks.sql_tasks [--scale F] [--rounds N] [--workers N]

The 22 statements of TPC-H are planned from their files, placed by the scheduler's policy, run by the process of a SQL
task over workers, and their times correct the next expectations, as at a centre: the code of production, without its
daemons. `prediction_error` is the mean of |expected / measured - 1| in the last round, `first_error` in the first one,
with the built-in calibration uncorrected; each over the statements that are split. `planned_share` is that of all
statements.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from controller.acceleration.calibration.corrections import Corrections, corrected
from controller.acceleration.policies.choosing import Chooser, key_of
from controller.acceleration.running.steps.submitting import TableFile, TaskPlan, plan_task
from controller.acceleration.running.tasks.running import run_query
from controller.acceleration.running.tasks.values import Query, QueryTable
from controller.acceleration.values import Network
from controller.apiserver.resources.operator_graphs import operators_of
from tests.benchmarks.accelerating.tpch import data as tpch
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS

_BETWEEN = Network(10.0)
"""The policy's default rate between two units of a centre, in Gbit/s."""


def expected_s(
    chooser: Chooser, plan: TaskPlan, workers: int, corrections: Corrections, task_type: str
) -> dict[str, float]:
    """Return the expected seconds of a plan's operators, by kind, as a dispatch states them."""
    operators = operators_of(plan.graph)
    kinds = {operator.name: operator.operator for operator in operators}
    factors = tuple(sorted((kind, corrections.factor_of(kind, task_type)) for kind in set(kinds.values())))
    placed = chooser.place(operators, key_of(operators), (), _BETWEEN, workers, factors)
    seconds: dict[str, float] = {}
    for chosen in placed.devices({}):
        assert chosen.seconds is not None, (placed.problem, chosen)
        seconds[kinds[chosen.operator]] = seconds.get(kinds[chosen.operator], 0.0) + chosen.seconds
    return seconds


def measured(rounds: int, workers: int, plans: Mapping[str, TaskPlan], files: Mapping[str, Path]) -> list[list[float]]:
    """Return the errors of each round, one a statement that is split."""
    chooser, corrections, errors = Chooser("", ""), Corrections(), list[list[float]]()
    for _ in range(rounds):
        of_round = []
        for name, plan in plans.items():
            if not plan.sharded:
                continue
            expected = expected_s(chooser, plan, workers, corrections, name)
            tables = {label: QueryTable(file=str(files[label])) for label in plan.tables}
            query = Query(sql=STATEMENTS[name], tables=tables, sharded=plan.sharded, workers=workers)
            _, ran = run_query(query, {})
            of_round.append(sum(expected.values()) / ran.seconds - 1)
            print(f"{name}: {sum(expected.values()):.4f} s expected, {ran.seconds:.4f} s measured", file=sys.stderr)
            corrections = corrected(corrections, expected, ran.seconds, name)
        errors.append(of_round)
        print(json.dumps({kind: round(factor, 3) for kind, factor in corrections.factors.items()}), file=sys.stderr)
    return errors


def main() -> int:
    """Print all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-sql-") as name:
        folder = Path(name)
        with tpch.generated(folder, options.scale) as whole:
            names = [str(row[0]) for row in whole.execute("SHOW TABLES").fetchall()]
            files = {table: folder / f"{table}.parquet" for table in names}
            for table, file in files.items():
                whole.execute(f"COPY {table} TO '{file}'")
        plans = {
            statement: plan_task(
                sql, {table: TableFile(file) for table, file in files.items() if table in sql}, statement
            )
            for statement, sql in STATEMENTS.items()
        }
        errors = measured(options.rounds, options.workers, plans, files)
    means = [statistics.mean(map(abs, of_round)) for of_round in errors]
    print(
        json.dumps(
            {
                "planned_share": sum(bool(plan.graph.operators) for plan in plans.values()) / len(STATEMENTS),
                "split": sum(bool(plan.sharded) for plan in plans.values()),
                "first_error": round(means[0], 3),
                "prediction_error": round(means[-1], 3),
                "errors_by_round": [round(mean, 3) for mean in means],
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
