"""`millrace probe kernels show`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address
from controller.apps.cli.probe.library import library_of
from controller.apps.cli.shared.output import Format
from controller.apps.cli.shared.output import show as show_rows

if TYPE_CHECKING:
    from controller.probing.values import ProbeKernel


class Form(StrEnum):
    """Output format of a kernel: for people, or as a standalone file."""

    TABLE = "table"
    YAML = "yaml"


def show(
    name: Annotated[
        str, typer.Argument(metavar="KERNEL[.VERSION]", help="Kernel as in `millrace probe kernels list`.")
    ],
    form: Annotated[Form, typer.Option("--output", "-o", "--format", "-f", help="Text, or its file.")] = (Form.TABLE),
    address: Address = None,
) -> None:
    """Show a probe kernel: its operator, sizes, versions and code."""
    from controller.probing.kernel_files import dumps  # noqa: PLC0415

    library = library_of(address)
    kernel = library.named(name)
    if form is Form.YAML:
        typer.echo(dumps(kernel), nl=False)
        return
    versions = " ".join(str(version.version) for version in library.versions(kernel.identifier))
    show_rows(("what", "value"), _rows(kernel, versions), Format.TABLE)
    codes = (
        (
            implementation.device.value,
            implementation.library.value,
            implementation.entry,
            "all cores given" if implementation.threads else "one core",
        )
        for implementation in kernel.implementations
    )
    show_rows(("device", "library", "code", "uses"), codes, Format.TABLE)


def _rows(kernel: ProbeKernel, versions: str) -> list[tuple[str, object]]:
    from controller.cluster.operators import KINDS  # noqa: PLC0415

    kind = KINDS.get(kernel.operator)
    rows = [
        ("kernel", f"{kernel.identifier}.{kernel.version}"),
        ("versions", versions),
        ("category", kernel.category),
        ("operator", kernel.operator if kind is None else f"{kernel.operator}: {kind.meaning}"),
        ("format", None if kernel.number_format is None else kernel.number_format.value),
        ("sizes", " ".join(f"{name}={size}" for name, size in kernel.sizes)),
        ("true value", kernel.truth),
        ("tolerance", kernel.tolerance),
        ("divided by", kernel.splits or None),
    ]
    return [row for row in rows if row[1] is not None]
