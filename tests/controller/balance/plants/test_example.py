"""The worked example to the digit, in fractions, by the platform's rule; and by the interval table."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.balance.plants import Plant, PlantState
from controller.balance.plants.example import (
    CLUSTERS,
    START,
    Cluster,
    Stage,
    by_table,
    gain_between,
    light_tops,
    stages,
    table_stages,
)
from controller.balance.plants.plant import Application
from controller.balance.plants.power import UNITS_BY_FREQUENCY
from controller.balance.rules import TABLE, PlatformRule
from controller.balance.values import Sample


def shares(cluster: Cluster) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
    """Return bus and load under the light load and at full load, in percent."""
    light, full = cluster.under(light_tops(cluster)), cluster.full
    return (100 * light.bus, 100 * light.load), (100 * full.bus, 100 * full.load)


def test_two_clusters_of_100_before_balancing() -> None:
    start, _, _ = stages()
    first, second = start.clusters
    assert first.state == second.state == START
    assert shares(first) == ((Fraction(50), Fraction(25)), (Fraction(100), Fraction(50)))
    assert shares(second) == ((Fraction(25), Fraction(50)), (Fraction(50), Fraction(100)))
    assert (first.full.work_tops, second.full.work_tops) == (Fraction(5000), Fraction(10_000))
    assert (first.full.error, second.full.error) == (Fraction(1, 2), Fraction(-1, 2))


def test_first_cluster_frees_50_and_the_second_asks_for_100() -> None:
    first, second = CLUSTERS
    asks = [
        PlatformRule().change(
            float(cluster.full.error), Sample(0.0, float(cluster.full.bus), float(cluster.full.load)), cluster.state
        )
        for cluster in (first, second)
    ]
    assert [ask.sub_units for ask in asks] == [-50, 100]
    moved = stages()[1]
    assert [cluster.state.sub_units for cluster in moved.clusters] == [50, 150]
    assert [shares(cluster)[1] for cluster in moved.clusters] == [
        (Fraction(100), Fraction(100)),
        (Fraction(75), Fraction(100)),
    ]
    assert moved.clusters[1].full.work_tops == Fraction(15_000)


def test_of_the_residual_error_the_clock_takes_ten_percent() -> None:
    second = stages()[2].clusters[1]
    assert (second.state.sub_units, second.state.frequency_mhz) == (150, 1100)
    assert shares(second)[1] == (Fraction(165, 2), Fraction(100))
    assert second.full.work_tops == Fraction(16_500)


def test_data_centre_does_21500_tops_for_a_power_of_215() -> None:
    start, _, after = stages()
    assert (start.work_tops, after.work_tops) == (Fraction(15_000), Fraction(21_500))
    assert (start.power, after.power) == (Fraction(200), Fraction(215))
    assert gain_between(start, after) == (Fraction(43, 30), Fraction(4, 3))


def test_the_decision_is_the_same_when_loads_are_light() -> None:
    for cluster in CLUSTERS:
        light, full = cluster.under(light_tops(cluster)), cluster.full
        seen = [Sample(0.0, float(rest.bus), float(rest.load)) for rest in (light, full)]
        changes = [PlatformRule().change(sample.error, sample, cluster.state) for sample in seen]
        assert changes[0] == changes[1]


def test_table_frees_two_units_a_step_and_rests_at_55() -> None:
    first, second = by_table()
    assert first.sub_units[:3].tolist() == [100, 98, 96]
    assert second.sub_units[:3].tolist() == [100, 102, 104]
    start, step, rest = table_stages()
    assert [cluster.state.sub_units for cluster in step.clusters] == [98, 102]
    assert [cluster.state.sub_units for cluster in rest.clusters] == [55, 145]
    assert rest.clusters[0].full.error == Fraction(1, 11)
    assert float(rest.clusters[0].full.error) < TABLE.dead_band[1]
    assert rest.work_tops / start.work_tops == Fraction(13, 10)


@pytest.mark.parametrize("stage", stages(), ids=lambda stage: stage.name.replace(" ", "-"))
def test_plant_comes_to_rest_as_in_the_example(stage: Stage) -> None:
    for cluster in stage.clusters:
        plant = Plant(
            application=Application(ops_per_byte=cluster.ops_per_byte), bus_gb_per_s=25, power=UNITS_BY_FREQUENCY
        )
        state, done, energy_j = PlantState(), 0.0, 0.0
        for _ in range(30):
            state, sample, done, energy_j = plant.step(state, cluster.state, 1e5, 1.0)
        assert (sample.bus, sample.load) == pytest.approx((float(cluster.full.bus), float(cluster.full.load)))
        assert (done, energy_j) == pytest.approx((float(cluster.full.work_tops), float(cluster.power)))


def test_the_command_prints_both_tables_of_both_rules() -> None:
    result = CliRunner().invoke(app, ["balance", "example"], env={"COLUMNS": "140"})
    assert result.exit_code == 0
    assert "15000 -> 21500 TOPS (+43 %) for a power of 200 -> 215: efficiency x1.333" in result.output
    for text in ("21500", "1.433", "215", "1.333", "82.5 / 100", "-0.175", "n' = n P_d / P_p", "100 / 90.91", "+0.091"):
        assert text in result.output


def test_the_command_gives_programs_one_array() -> None:
    result = CliRunner().invoke(app, ["balance", "example", "-f", "json"])
    rows = json.loads(result.output)
    both = [row for row in rows if row["cluster"] == "both"]
    assert [(row["rule"], row["tops"]) for row in both] == [
        ("platform", 15_000),
        ("platform", 20_000),
        ("platform", 21_500),
        ("table", 15_000),
        ("table", 15_200),
        ("table", 19_500),
    ]


def test_the_command_knows_two_rules() -> None:
    result = CliRunner().invoke(app, ["balance", "example", "--rule", "guess"])
    assert result.exit_code == 2
    assert "expected platform, table or both" in result.output
