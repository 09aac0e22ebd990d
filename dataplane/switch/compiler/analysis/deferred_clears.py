"""Finds metadata to clear only where a control can first touch them, so that packets that never get there skip it.

A field that only one control refers to is useless outside of what is dominated by the nearest common dominator of the
referring nodes: it is cleared there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce

from dataplane.program.model import Pipeline, Program
from dataplane.program.operations import FieldRef
from dataplane.program.pipelines import successors
from dataplane.switch.compiler.analysis.dataflow import dominators
from dataplane.switch.compiler.analysis.references import in_node, outside_of_controls, reachable


def deferred_fields(program: Program, candidates: Iterable[FieldRef]) -> dict[str, tuple[FieldRef, ...]]:
    """Return the candidates that need not be zero before a node, by that node's name.

    Candidates are metadata that only the program sees. Those needed from a control's first node on are excluded.
    """
    left = set(candidates) - set(outside_of_controls(program))
    ingress, egress = (_nodes_by_field(pipeline, left) for pipeline in (program.ingress, program.egress))
    fields: dict[str, list[FieldRef]] = defaultdict(list)
    for pipeline, mine, others in ((program.ingress, ingress, egress), (program.egress, egress, ingress)):
        for name, ref in _by_dominator(pipeline, {ref: nodes for ref, nodes in mine.items() if ref not in others}):
            fields[name].append(ref)
    return {name: tuple(refs) for name, refs in fields.items()}


def _nodes_by_field(pipeline: Pipeline, candidates: set[FieldRef]) -> dict[FieldRef, list[str]]:
    nodes: dict[FieldRef, list[str]] = defaultdict(list)
    for name, node in pipeline.nodes.items():
        for ref in {ref for ref in in_node(node) if isinstance(ref, FieldRef) and ref in candidates}:
            nodes[ref].append(name)
    return nodes


def _by_dominator(pipeline: Pipeline, nodes: Mapping[FieldRef, list[str]]) -> Iterable[tuple[str, FieldRef]]:
    """Return each field with the nearest common dominator of the nodes that refer to it."""
    if pipeline.initial is None:
        return
    following = {name: successors(node) for name, node in pipeline.nodes.items()}
    common_dominator = dominators(following, pipeline.initial)
    met = set(reachable(pipeline))
    for ref, names in nodes.items():
        inside = [name for name in names if name in met]
        if inside and (dominator := reduce(common_dominator, inside)) != pipeline.initial:
            yield dominator, ref
