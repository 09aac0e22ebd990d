"""`millrace devices`: this machine's hardware and its utilisation, from /proc, /sys and NVML."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.output import Cells, Format, show
from dataplane.errors import ConfigError

if TYPE_CHECKING:
    from collectors.devices.nvml import Nvml
    from collectors.devices.sampling import Sampler
    from collectors.devices.values import DeviceSample, HostSample, InterfaceRates, Machine

_COLUMNS: Final = ("what", "model", "amount", "memory", "bus", "where")


class Output(StrEnum):
    """Output format of the machine's description."""

    TABLE = "table"
    YAML = "yaml"
    CSV = "csv"
    JSON = "json"


def devices(
    output: Annotated[
        Output,
        typer.Option("--output", "-o", "--format", "-f", help="Text; part of a host in a topology file; JSON."),
    ] = Output.TABLE,
    watch: Annotated[bool, typer.Option("--watch", help="Print utilisation repeatedly.")] = False,
    interval_s: Annotated[
        float, typer.Option("--interval", parser=in_seconds(0, 3600), help="Time between samples.")
    ] = 1.0,
    samples: Annotated[
        int | None, typer.Option("--samples", min=1, metavar="N", help="Number of samples to print.")
    ] = None,
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Read proc/ and sys/ of this folder (a recorded machine).")
    ] = Path("/"),
) -> None:
    """Show this machine's processors, memory and devices, and the control-group limits of this process."""
    from collectors.devices.discovery import discover  # noqa: PLC0415
    from collectors.devices.root import Root  # noqa: PLC0415
    from collectors.devices.sampling import Sampler  # noqa: PLC0415
    from dataplane.clock import UtcClock  # noqa: PLC0415

    with nvml_of(root) as nvml:
        if watch:
            sampler = Sampler(Root(root), UtcClock(), None if isinstance(nvml, str) else nvml)
            _watch(sampler, output, interval_s, samples)
        else:
            _describe(discover(Root(root), nvml), output)


@contextmanager
def nvml_of(root: Path) -> Iterator[Nvml | str]:
    """Yield NVIDIA's library for the machine below a root folder, or why it is not asked.

    Raise ConfigError for a folder that is no machine's root.
    """
    from collectors.devices.nvml import open_nvml  # noqa: PLC0415

    if not (root / "proc").is_dir():
        raise ConfigError("is not a machine's root: it has no folder proc", file=str(root))
    if root != Path("/"):
        yield "NVML: not queried for a recorded machine"
        return
    with open_nvml() as nvml:
        yield nvml


def _describe(machine: Machine, output: Output) -> None:
    match output:
        case Output.TABLE:
            _print_table(machine)
        case Output.CSV:
            show(_COLUMNS, _rows(machine), Format.CSV)
        case Output.YAML:
            _print_yaml(machine)
        case Output.JSON:
            _print_json(machine)


def _print_table(machine: Machine) -> None:
    show(_COLUMNS, _rows(machine), Format.TABLE)
    limits = machine.limits
    memory = "unlimited memory" if limits.memory_bytes is None else f"{_size(limits.memory_bytes)} of memory"
    typer.echo(f"This process may use {machine.cpu_milli / 1000:g} CPUs and {memory}.")
    for note in machine.notes:
        typer.echo(f"Note: {note}")


def _rows(machine: Machine) -> Iterator[Cells]:
    processors = machine.processors
    counts = ((processors.sockets, "sockets"), (processors.cores, "cores"), (processors.cpus, "CPUs"))
    amount = ", ".join(f"{what}: {many}" for many, what in counts if many)
    yield "cpu", processors.model, amount, "", "", ""
    for medium in machine.memory:
        yield medium.kind.value, "", "", _size(medium.capacity_bytes), _bandwidth(medium.bytes_per_s), ""
    for device in machine.devices:
        about, bus = device.device, device.device.bus
        rate = "" if bus is None else f"{bus.kind} {_bandwidth(bus.bytes_per_s)}".strip()
        memory = "" if about.memory_bytes is None else _size(about.memory_bytes)
        yield about.kind.value, about.model, "1", memory, rate, f"{device.address} {device.driver}".strip()


def _print_yaml(machine: Machine) -> None:
    from dataplane.topology.file import dumps_hardware  # noqa: PLC0415

    for note in machine.notes:
        typer.echo(f"# {note}")
    if machine.cores is None:
        typer.echo(f"# no cores: {machine.cpu_milli} thousandths of a CPU are available to this process")
    typer.echo(dumps_hardware(machine.cores, machine.allowed_memory, machine.grouped_devices), nl=False)


def _print_json(value: object) -> None:
    import msgspec  # noqa: PLC0415

    typer.echo(msgspec.json.encode(value, order="sorted"))


def _watch(sampler: Sampler, output: Output, interval_s: float, samples: int | None) -> None:
    """Print a sample per interval; the first needs a whole one, since shares of time span two readings."""
    from collectors.devices.disks import disk_rates  # noqa: PLC0415
    from collectors.devices.interfaces import interface_rates  # noqa: PLC0415

    sampler.host()
    sampler.devices()
    before = {sample.name: sample for sample in sampler.interfaces()}
    disks_before = {sample.name: sample for sample in sampler.disks()}
    for _ in islice(count(), samples):
        time.sleep(interval_s)
        host, devices, after = sampler.host(), sampler.devices(), sampler.interfaces()
        rates = [interface_rates(before[now.name], now) for now in after if now.name in before]
        measured = [rate for rate in rates if rate is not None]
        disks = sampler.disks()
        disk_figures = [disk_rates(disks_before[now.name], now) for now in disks if now.name in disks_before]
        known_disks = [rate for rate in disk_figures if rate is not None]
        if output is Output.JSON:
            _print_json({"host": host, "devices": devices, "interfaces": measured, "disks": known_disks})
        else:
            _print_samples(host, devices, measured)
            for disk in known_disks:
                megabytes = f"read {disk.read_bytes_per_s / 1e6:.2f}, written {disk.written_bytes_per_s / 1e6:.2f} MB/s"
                typer.echo(f"  {disk.name} {megabytes}, busy {disk.busy:.0%}")
        before = {sample.name: sample for sample in after}
        disks_before = {sample.name: sample for sample in disks}


def _print_samples(host: HostSample, devices: tuple[DeviceSample, ...], rates: list[InterfaceRates]) -> None:
    from controller.apps.cli.shared.output import utc  # noqa: PLC0415

    parts = [
        _figure("cpu", host.cpu_busy, "{:.0%}"),
        _figure("at", host.clock_hz and host.clock_hz / 1e9, "{:.2f} GHz"),
        _figure("power", host.power_w, "{:.0f} W"),
        _figure("memory", host.memory_used_bytes and host.memory_used_bytes / 2**30, "{:.1f} GiB"),
        *(_figure(f"waiting for {name}", share.some, "{:.0%}") for name, share in host.pressure.items()),
    ]
    typer.echo(f"{utc(host.time_ns)} {_joined(parts)}")
    for device in devices:
        figures = [
            _figure("busy", device.utilisation, "{:.0%}"),
            _figure("memory", device.memory_used_bytes and device.memory_used_bytes / 2**30, "{:.1f} GiB"),
            _figure("at", device.clock_hz and device.clock_hz / 1e9, "{:.2f} GHz"),
            _figure("power", device.power_w, "{:.0f} W"),
            _figure("PCIe in", device.pcie_rx_bytes_per_s and device.pcie_rx_bytes_per_s / 1e9, "{:.2f} GB/s"),
            _figure("PCIe out", device.pcie_tx_bytes_per_s and device.pcie_tx_bytes_per_s / 1e9, "{:.2f} GB/s"),
        ]
        typer.echo(f"  {device.address} {_joined(figures) or next(iter(device.missing.values()), '')}")
    for rate in rates:
        share = "" if rate.tx_share is None else f" ({rate.rx_share:.1%}, {rate.tx_share:.1%} of the link)"
        typer.echo(f"  {rate.name} in {rate.rx_bps / 1e6:.2f}, out {rate.tx_bps / 1e6:.2f} Mbit/s{share}")


def _figure(name: str, value: float | None, form: str) -> str:
    return "" if value is None else f"{name} {form.format(value)}"


def _joined(parts: list[str]) -> str:
    return ", ".join(filter(None, parts))


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def _bandwidth(bytes_per_s: int | None) -> str:
    return "" if bytes_per_s is None else f"{bytes_per_s / 1e9:.1f} GB/s"
