"""Distances between places, and the propagation delay of a cable between them."""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

from dataplane.topology.values import GeoLocation

EARTH_RADIUS_KM = 6371.0
"""Mean radius."""
FIBRE_NS_PER_KM = 5000
"""Light in fibre takes 5 us per kilometre: the speed of light over a refractive index of 1.5."""
LEAST_ROUTE_KM = 10.0
"""Minimum fibre length between two routers, even within one city."""


def great_circle_km(a: GeoLocation, b: GeoLocation) -> float:
    """Return the distance over the ground, by the haversine formula on a sphere."""
    south, north = radians(a.latitude), radians(b.latitude)
    east = radians(b.longitude - a.longitude)
    half = sin((north - south) / 2) ** 2 + cos(south) * cos(north) * sin(east / 2) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, half)))


def route_km(a: GeoLocation, b: GeoLocation) -> float:
    """Estimate the fibre length of a cable between two places (ITU-T Rec. G.826, route length).

    Routes do not follow great circles: 1.5 times the distance below 1000 km, 1500 km up to 1200 km, 1.25 times beyond.
    """
    distance = great_circle_km(a, b)
    if distance < 1000:
        return max(LEAST_ROUTE_KM, 1.5 * distance)
    return max(1500.0, 1.25 * distance)


def propagation_delay_ns(a: GeoLocation, b: GeoLocation) -> int:
    """Return the one-way delay of a cable between two places, rounded to whole microseconds."""
    return round(route_km(a, b) * FIBRE_NS_PER_KM / 1000) * 1000
