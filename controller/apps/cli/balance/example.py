"""`millrace balance example`: two clusters that balance each other, by both rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, SupportsFloat

import typer

from controller.apps.cli.shared.output import Cells, Format, FormatOption, show

if TYPE_CHECKING:
    from controller.balance.plants.example import Cluster, Stage

_CLUSTERS = ("stage", "cluster", "vGPUs", "GHz", "light: bus / load %", "full: bus / load %", "e", "TOPS")
_CENTRE = ("stage", "TOPS", "times as much", "power", "TOPS / power", "times as efficient")
_ALL = (
    *("rule", "stage", "cluster", "vgpus", "ghz", "light_bus", "light_load", "full_bus", "full_load", "error", "tops"),
    *("power", "work_ratio", "efficiency_ratio"),
)
_TITLES = {
    "platform": "The platform's rule, n' = n P_d / P_p; the clock makes up for what vGPUs cannot do:",
    "table": "The interval table, only vGPUs, one step at a time; one cluster requests what the other frees:",
}


def example(
    rule: Annotated[str, typer.Option(metavar="platform|table|both", help="Rule by which vGPUs move.")] = "both",
    form: FormatOption = Format.TABLE,
) -> None:
    """Show two clusters of 100 vGPUs, one limited by its bus and one by its cores, before and after balancing.

    By the platform's rule and by the interval table. Nothing is measured: figures follow from the plant's formulas.
    """
    from controller.balance.plants.example import stages, table_stages  # noqa: PLC0415

    if rule not in {"platform", "table", "both"}:
        raise typer.BadParameter(f"--rule {rule}: expected platform, table or both")
    by_rule = {"platform": stages, "table": table_stages}
    chosen = {name: make() for name, make in by_rule.items() if rule in {name, "both"}}
    if form is not Format.TABLE:
        show(_ALL, [cells for name, made in chosen.items() for cells in _all_cells(name, made)], form)
        return
    for name, made in chosen.items():
        typer.echo(_TITLES[name])
        show(_CLUSTERS, [_cluster_cells(stage, cluster) for stage in made for cluster in stage.clusters], form)
        typer.echo("Both clusters at full load; power is vGPUs times GHz:")
        show(_CENTRE, [_centre_cells(made[0], stage) for stage in made], form)
        typer.echo(_summary(made[0], made[-1]))


def _cluster_cells(stage: Stage, cluster: Cluster) -> Cells:
    from controller.balance.plants.example import light_tops  # noqa: PLC0415

    light, full = cluster.under(light_tops(cluster)), cluster.full
    return (
        stage.name,
        cluster.name,
        cluster.state.sub_units,
        cluster.state.frequency_mhz / 1000,
        f"{_percent(light.bus)} / {_percent(light.load)}",
        f"{_percent(full.bus)} / {_percent(full.load)}",
        f"{float(full.error):+.3f}",
        _short(full.work_tops),
    )


def _centre_cells(start: Stage, stage: Stage) -> Cells:
    work, efficiency = _ratios(start, stage)
    each = f"{float(stage.efficiency):.4g}"
    return stage.name, _short(stage.work_tops), f"{work:.3f}", _short(stage.power), each, f"{efficiency:.3f}"


def _summary(start: Stage, end: Stage) -> str:
    work, efficiency = _ratios(start, end)
    tops = f"{_short(start.work_tops)} -> {_short(end.work_tops)} TOPS ({100 * (work - 1):+.0f} %)"
    return f"{tops} for a power of {_short(start.power)} -> {_short(end.power)}: efficiency x{efficiency:.3f}"


def _all_cells(rule: str, stages: tuple[Stage, ...]) -> list[Cells]:
    """Return a row for each cluster at each stage, and one for both."""
    from controller.balance.plants.example import light_tops  # noqa: PLC0415

    rows: list[Cells] = []
    for stage in stages:
        for cluster in stage.clusters:
            light, full = cluster.under(light_tops(cluster)), cluster.full
            shares = (light.bus, light.load, full.bus, full.load, full.error, full.work_tops, cluster.power)
            levers = (cluster.state.sub_units, cluster.state.frequency_mhz / 1000)
            rows.append((rule, stage.name, cluster.name, *levers, *map(float, shares), None, None))
        units = sum(cluster.state.sub_units for cluster in stage.clusters)
        totals = (float(stage.work_tops), float(stage.power), *_ratios(stages[0], stage))
        rows.append((rule, stage.name, "both", units, *[None] * 6, *totals))
    return rows


def _ratios(start: Stage, stage: Stage) -> tuple[float, float]:
    from controller.balance.plants.example import gain_between  # noqa: PLC0415

    work, efficiency = gain_between(start, stage)
    return float(work), float(efficiency)


def _percent(share: SupportsFloat) -> str:
    return f"{100 * float(share):.4g}"


def _short(value: SupportsFloat) -> str:
    return f"{float(value):.10g}"
