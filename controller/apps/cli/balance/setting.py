"""`millrace balance set`, to configure pools, claims and control, and `millrace balance report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds

if TYPE_CHECKING:
    from controller.apiserver.resources import UnitPool
    from controller.apiserver.resources.unit_pool import PoolControl, UnitPoolSpec

_CLAIM_KEYS = ("least", "most", "priority", "weight")


def set_pool(  # noqa: PLR0917 - a command line's options
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    create: Annotated[bool, typer.Option("--create", help="Create the pool if missing; requires --units.")] = False,
    units: Annotated[int | None, typer.Option(min=0, help="Number of units.")] = None,
    claims: Annotated[
        list[str] | None,
        typer.Option("--claim", metavar="HOLDER[:least=N,most=N,...]", help="Holder's claim; also priority, weight."),
    ] = None,
    without: Annotated[list[str] | None, typer.Option("--without", metavar="HOLDER", help="Remove a claim.")] = None,
    hold_s: Annotated[
        float | None, typer.Option("--hold", "--hold-s", parser=in_seconds(), help="Time that a moved unit stays.")
    ] = None,
    lease_s: Annotated[
        float | None,
        typer.Option("--lease", "--lease-s", parser=in_seconds(), help="Reclaim units of a silent holder."),
    ] = None,
    paused: Annotated[bool | None, typer.Option("--paused/--moving", help="Pause or resume all moves.")] = None,
    form: Annotated[str | None, typer.Option(help="Form of the controller: P, PI, PD or PID.")] = None,
    kp: Annotated[float | None, typer.Option(min=0, help="Output per error.")] = None,
    ki: Annotated[float | None, typer.Option(min=0, help="Output per error and report.")] = None,
    kd: Annotated[float | None, typer.Option(min=0, help="Output per change of the error.")] = None,
    scheme: Annotated[str | None, typer.Option(help="Gains: fixed, expert or fuzzy.")] = None,
    rule: Annotated[str | None, typer.Option(help="table (a few units a step) or platform (n P_d / P_p).")] = None,
    dead_band: Annotated[float | None, typer.Option(min=0, max=1, help="Errors to ignore.")] = None,
    asks_from_load: Annotated[
        float | None, typer.Option("--asks-from-load", min=0, max=1, help="Minimum core load to add units.")
    ] = None,
    frees_to_load: Annotated[
        float | None, typer.Option("--frees-to-load", min=0, max=1, help="Maximum core load to free idle units.")
    ] = None,
    settle_s: Annotated[
        float | None,
        typer.Option("--settle", "--settle-s", parser=in_seconds(), help="Time from a move to valid reports."),
    ] = None,
    node: Annotated[str | None, typer.Option(help="With --create: node whose devices are the units.")] = None,
    model: Annotated[
        str | None, typer.Option(help="With --node: model of the devices, such as that of instances (MIG).")
    ] = None,
    thousandths: Annotated[int | None, typer.Option(min=1, max=1000, help="Share of a device in a unit.")] = None,
    address: Address = None,
) -> None:
    """Set how a pool is shared; other settings stay. Requires the rights of an administrator or a service."""
    given = {"units": units, "hold_s": hold_s, "lease_s": lease_s, "paused": paused}
    control = {"form": form, "kp": kp, "ki": ki, "kd": kd, "scheme": scheme}
    control |= {"rule": rule, "dead_band": dead_band, "settle_s": settle_s, "asks_from_load": asks_from_load}
    control |= {"frees_to_load": frees_to_load}
    where = {"node": node, "model": model, "unit_thousandths": thousandths}
    wanted_control = {key: value for key, value in control.items() if value is not None}
    with client_of(address) as client:
        from controller.apiserver.resources import UnitPool  # noqa: PLC0415

        pools = client.of(UnitPool)
        before = _existing_pool(pools, pool, create=create)
        spec = _spec(
            None if before is None else before.spec, given | where, wanted_control, claims or [], without or []
        )
        for line in (*_margins(spec, asked=bool(wanted_control)), *_leasts(spec)):
            typer.echo(line, err=True)
        if before is None:
            pools.create(_new(pool, spec))
        else:
            pools.replace(_changed(before, spec))
    typer.echo(f"UnitPool {pool}: {_summary(spec)}")


def report(  # noqa: PLR0917 - a command line's options
    pool: Annotated[str, typer.Argument(help="Name of the pool.")],
    holder: Annotated[
        str, typer.Argument(help="Reporting holder; a token of role holder reports only for its subject.")
    ],
    bus: Annotated[float | None, typer.Option(min=0, max=1, help="Occupancy of the bus.")] = None,
    load: Annotated[float | None, typer.Option(min=0, max=1, help="Load of the cores.")] = None,
    wants: Annotated[int | None, typer.Option(help="Request this many units more (negative: fewer) instead.")] = None,
    holds: Annotated[int | None, typer.Option(min=0, help="Promise to use at most this many units.")] = None,
    precision: Annotated[str, typer.Option(help="Current precision: int8, fp16, ...")] = "",
    frequency_mhz: Annotated[float | None, typer.Option("--mhz", min=0, help="Current clock.")] = None,
    address: Address = None,
) -> None:
    """Report a holder's units once, as an upstream device does continuously; show what it has now."""
    from controller.apiserver.resources.unit_pool import HolderStatus  # noqa: PLC0415
    from controller.balance.values import Precision  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415

    if precision and precision not in tuple(Precision):
        raise InvalidError(f"--precision {precision!r} is not one of {', '.join(Precision)}")
    told = HolderStatus(
        holder=holder,
        bus=bus,
        load=load,
        wants=wants,
        holds=holds,
        precision=precision,
        frequency_mhz=frequency_mhz,
    )
    with client_of(address) as client:
        after = client.report_units(pool, told)
    share = next((share for share in after.shares if share.holder == holder), None)
    units, leaving = (0, 0) if share is None else (share.units, share.leaving)
    back = f", {leaving} of them being reclaimed" if leaving else ""
    typer.echo(f"{holder} has {units} units of {pool}{back}")


def _existing_pool(pools: Any, name: str, *, create: bool) -> UnitPool | None:  # noqa: ANN401 - resources of a client
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    try:
        pool: UnitPool = pools.get(name)
    except NotFoundError:
        if not create:
            raise
        return None
    return pool


def _spec(
    before: UnitPoolSpec | None,
    given: dict[str, Any],
    control: dict[str, Any],
    claims: list[str],
    without: list[str],
) -> UnitPoolSpec:
    """Return the spec with the given changes; raise InvalidError, in one line, for impossible ones."""
    import msgspec  # noqa: PLC0415

    from controller.apiserver.resources.unit_pool import UnitPoolSpec  # noqa: PLC0415
    from controller.common.errors import InvalidError  # noqa: PLC0415

    raw: dict[str, Any] = {} if before is None else msgspec.to_builtins(before)
    raw |= {key: value for key, value in given.items() if value is not None}
    raw["control"] = raw.get("control", {}) | control
    by_holder: dict[str, dict[str, Any]] = {claim["holder"]: claim for claim in raw.get("claims", [])}
    for text in claims:
        claim = _claim(text)
        by_holder[claim["holder"]] = by_holder.get(claim["holder"], {}) | claim
    missing = next((holder for holder in without if holder not in by_holder), None)
    if missing is not None:
        raise InvalidError(f"--without {missing}: has no claim")
    raw["claims"] = [claim for holder, claim in by_holder.items() if holder not in without]
    if "units" not in raw:
        raise InvalidError("--units: required for a new pool")
    try:
        return msgspec.convert(raw, UnitPoolSpec)
    except msgspec.ValidationError as error:
        raise InvalidError(f"spec: {error}") from None


def _claim(text: str) -> dict[str, Any]:
    """Return `HOLDER:least=1,weight=2.5` as keys of a claim."""
    from controller.common.errors import InvalidError  # noqa: PLC0415

    holder, _, rest = text.partition(":")
    claim: dict[str, Any] = {"holder": holder}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in _CLAIM_KEYS or not equals:
            raise InvalidError(f"--claim {text}: {part!r} is not one of {', '.join(f'{key}=N' for key in _CLAIM_KEYS)}")
        try:
            claim[key] = float(value) if key == "weight" else int(value)
        except ValueError:
            raise InvalidError(f"--claim {text}: {key}: {value!r} is not a number") from None
    return claim


def _margins(spec: UnitPoolSpec, *, asked: bool) -> list[str]:
    """Return lines about the stability of the pool's control; raise GainsError for gains unstable on all of its units.

    A holder of few units responds more to each. Instability only there is a warning, as the table's guard omits steps
    that would oscillate.
    """
    from controller.balance.errors import GainsError  # noqa: PLC0415
    from controller.balance.serving.margin import margin_for  # noqa: PLC0415

    if not asked:
        return []
    margin = margin_for(spec.control, spec.units)
    if margin is None:
        return []
    share = spec.units // max(len(spec.claims), 1)
    try:
        margin_for(spec.control, share)
    except GainsError as error:
        return [f"warning: at {share} units per holder: {error}"]
    if margin.stable_to is None:
        return []
    return [f"stable: gains may be {margin.stable_to:.3g} times as large for a holder of all units"]


def _leasts(spec: UnitPoolSpec) -> list[str]:
    """Return a warning about minimum shares that exceed the pool's units."""
    least = sum(claim.least for claim in spec.claims)
    if least <= spec.units:
        return []
    return [f"warning: claims: minimum shares add up to {least} of {spec.units} units: not all can be met"]


def _new(name: str, spec: UnitPoolSpec) -> UnitPool:
    from controller.apiserver.resources import Metadata, UnitPool  # noqa: PLC0415

    return UnitPool(metadata=Metadata(name=name), spec=spec)


def _changed(before: UnitPool, spec: UnitPoolSpec) -> UnitPool:
    from msgspec.structs import replace  # noqa: PLC0415

    return replace(before, spec=spec, metadata=replace(before.metadata, revision=0))


def _summary(spec: UnitPoolSpec) -> str:
    control: PoolControl = spec.control
    gains = f"{control.form.value}, kp {control.kp:g}, ki {control.ki:g}, kd {control.kd:g} ({control.scheme.value})"
    claims = ", ".join(claim.holder for claim in spec.claims) or "no claims"
    return f"{spec.units} units; {claims}; {gains}, rule {control.rule.value}"
