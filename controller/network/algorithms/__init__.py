"""Algorithms over the links of a fabric: arrays in, arrays out, native where it pays off; no telemetry, no clock.

`LinkTable` holds the links as numpy columns. A link's cost is its delay with a hop in the low bits (`costs.py`), so
that hops decide between equal delays, and every cycle has a cost. `DestinationTrees` holds the cost from every switch
to every switch and repairs it when links change. `PathSearch` finds single paths under conditions: least delay, widest,
k shortest, disjoint ones. `reference.py` has the plain twins of the kernels.
"""
