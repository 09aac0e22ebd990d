"""Unit pools: the units of each holder, and the devices they are on."""
