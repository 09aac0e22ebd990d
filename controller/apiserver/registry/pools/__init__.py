"""Unit pools: who holds how many units, and on which devices they are."""
