"""`millrace probe kernels list`."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.apps.cli.cluster.api import Address
from controller.apps.cli.probe.library import library_of
from controller.apps.cli.shared.output import Format, FormatOption, show


def list_(
    category: Annotated[
        str | None, typer.Option(help="Only of this category: hpc, ai, sql, io, network, memory.")
    ] = None,
    form: FormatOption = Format.TABLE,
    address: Address = None,
) -> None:
    """List the probe kernels, the newest version of each."""
    rows = (
        (
            kernel.identifier,
            kernel.version,
            kernel.category,
            kernel.operator,
            None if kernel.number_format is None else kernel.number_format.value,
            " ".join(f"{name}={size}" for name, size in kernel.sizes),
            " ".join(
                dict.fromkeys(
                    f"{implementation.device.value}:{implementation.library.value}"
                    for implementation in kernel.implementations
                )
            ),
        )
        for kernel in library_of(address, tells=True).kernels(category)
    )
    show(("kernel", "version", "category", "operator", "format", "sizes", "implementations"), rows, form)
