"""Operator graphs of programs: Python callables and scripts by tracing a run; SQL by its plan."""

from __future__ import annotations

from controller.cluster.operators.tracing.running import time_callable, trace_callable
from controller.cluster.operators.tracing.scripts import trace_script, trace_target
from controller.cluster.operators.tracing.syntax import normalised
from controller.cluster.operators.tracing.values import Traced

__all__ = ["Traced", "normalised", "time_callable", "trace_callable", "trace_script", "trace_target"]
