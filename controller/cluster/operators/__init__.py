"""Operators: a program's computation as a graph of operations with shapes, counts and data flows.

Probe tasks are built from such graphs, and the acceleration model places their operators individually.
"""

from __future__ import annotations

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.files import dumps, load, loads
from controller.cluster.operators.kinds import KINDS, Counting, Kind, Work, work_of
from controller.cluster.operators.signatures import canonical, is_same, signature
from controller.cluster.operators.values import Flow, Operator, OperatorGraph

__all__ = [
    "KINDS",
    "Counting",
    "Flow",
    "Kind",
    "Operator",
    "OperatorError",
    "OperatorGraph",
    "Work",
    "canonical",
    "dumps",
    "is_same",
    "load",
    "loads",
    "signature",
    "work_of",
]
