from __future__ import annotations

import pytest

from dataplane.topology.values import GeoLocation
from tests.reference.geo import great_circle_km, propagation_delay_ns, route_km

EQUATOR = GeoLocation(0.0, 0.0)
KM_PER_DEGREE = 6371.0 * 3.141592653589793 / 180


def east(distance_km: float) -> GeoLocation:
    return GeoLocation(0.0, distance_km / KM_PER_DEGREE)


def test_distances_of_known_places() -> None:
    assert great_circle_km(GeoLocation(40.71, -74.01), GeoLocation(34.05, -118.24)) == pytest.approx(3936, abs=3)
    assert great_circle_km(GeoLocation(0, 179), GeoLocation(0, -179)) == pytest.approx(2 * KM_PER_DEGREE)
    assert great_circle_km(GeoLocation(90, 0), GeoLocation(-90, 77)) == pytest.approx(6371.0 * 3.141592653589793)


@pytest.mark.parametrize(
    ("distance_km", "fibre_km"), [(0, 10), (5, 10), (100, 150), (999, 1498.5), (1001, 1500), (1200, 1500), (2000, 2500)]
)
def test_route_length_of_g826(distance_km: float, fibre_km: float) -> None:
    assert route_km(EQUATOR, east(distance_km)) == pytest.approx(fibre_km)


def test_five_microseconds_a_kilometre_in_whole_microseconds() -> None:
    assert propagation_delay_ns(EQUATOR, east(2000)) == 12_500_000
    assert propagation_delay_ns(EQUATOR, east(100.0001)) == 750_000
