"""Picture of a topology for notebooks, as SVG."""

from __future__ import annotations

from html import escape
from typing import Final

from dataplane.clock import NS_PER_MS
from dataplane.topology.layout import bounds, placed
from dataplane.topology.values import Topology

_WIDTH: Final = 640.0
_MARGIN: Final = 40.0
_RADIUS: Final = 5.0


def topology_svg(topology: Topology) -> str:
    """Return a topology as it lies on the page's map: switches with their names, hosts, cables."""
    where = placed(topology)
    points = {**where.switches, **where.hosts}
    x0, y0, x1, y1 = bounds(list(points.values()))
    scale = (_WIDTH - 2 * _MARGIN) / (x1 - x0)
    height = 2 * _MARGIN + scale * (y1 - y0)

    def at(name: str) -> tuple[float, float]:
        x, y = points[name]
        return round(_MARGIN + scale * (x - x0), 1), round(_MARGIN + scale * (y - y0), 1)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:.0f}" font-size="11"']
    parts.append('font-family="sans-serif" fill="currentColor" stroke="currentColor">')
    for link in topology.links:
        (ax, ay), (bx, by) = at(link.a.node), at(link.b.node)
        told = f"{link.a.node} - {link.b.node}: {link.rate_bps / 1e9:g} Gbit/s, {link.delay_ns / NS_PER_MS:g} ms"
        parts.append(f'<line x1="{ax}" y1="{ay}" x2="{bx}" y2="{by}" opacity="0.5">')
        parts.append(f"<title>{escape(told)}</title></line>")
    for name in topology.host:
        x, y = at(name)
        parts.append(f'<rect x="{x - 2}" y="{y - 2}" width="4" height="4" stroke="none" opacity="0.6">')
        parts.append(f"<title>{escape(name)}</title></rect>")
    for name in topology.switch:
        x, y = at(name)
        parts.append(f'<circle cx="{x}" cy="{y}" r="{_RADIUS:g}" stroke="none"/>')
        parts.append(f'<text x="{x + 8}" y="{y - 6}" stroke="none">{escape(name)}</text>')
    return "\n".join((*parts, "</svg>"))
