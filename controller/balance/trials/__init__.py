"""Trials of controllers on a model of a unit under each kind of load: settling, and the number of lever moves."""
