"""Balancing transfer and compute load: feedback control of units that a bus feeds."""
