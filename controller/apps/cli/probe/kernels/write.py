"""`millrace probe kernels add|change|delete`: change the store's kernels; the built-in ones stay unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.probe.library import stored_library

if TYPE_CHECKING:
    from controller.probing.values import ProbeKernel

_File = Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON, as from `show -o yaml`.")]
_Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Do not run it here first: its code or device is elsewhere.")
]
_StandsFor = Annotated[
    str | None,
    typer.Option(
        "--stands-for",
        metavar="MODULE:FUNCTION",
        help="Function that matches similar code in programs.",
    ),
]


def add(
    file: _File,
    unchecked: _Unchecked = False,
    stands_for: _StandsFor = None,
    override: Annotated[bool, typer.Option("--override", help="Replace the built-in kernel of this version.")] = False,
    address: Address = None,
) -> None:
    """Add a probe kernel to the store, once it has run here with the expected output."""
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415
    from controller.probing.kernel_files import load  # noqa: PLC0415

    kernel = load(file)
    library = stored_library(address)
    if library.has(kernel.identifier, kernel.version) and not override:
        raise ProbeKernelError(
            f"kernel {kernel.identifier}.{kernel.version} exists already: change it to get a new version"
        )
    _write(kernel, unchecked=unchecked, stands_for=stands_for, address=address)


def change(file: _File, unchecked: _Unchecked = False, stands_for: _StandsFor = None, address: Address = None) -> None:
    """Put a new version of a probe kernel into the store; results keep naming their own version."""
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415
    from controller.probing.kernel_files import load  # noqa: PLC0415

    library = stored_library(address)
    newest = library.kernel(load(file).identifier).version
    kernel = load(file, next_version=newest + 1)
    if kernel.version != newest + 1:
        next_is = f"the next version of {kernel.identifier} is {newest + 1}"
        raise ProbeKernelError(f"{file}: version {kernel.version}: {next_is}; omit it to use that")
    _write(kernel, unchecked=unchecked, stands_for=stands_for, address=address)


def delete(
    name: Annotated[str, typer.Argument(metavar="KERNEL.VERSION")],
    address: Address = None,
) -> None:
    """Remove a version of a probe kernel from the store; refused while probe tasks use it."""
    from controller.apiserver.resources import ProbeKernel  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415
    from controller.probing.errors import ProbeKernelError  # noqa: PLC0415

    kernel = stored_library(address).named(name)
    full = f"{kernel.identifier}.{kernel.version}"
    if full != name:
        raise ProbeKernelError(f"name a version of {name} to remove; the newest is {full}")
    with client_of(address) as client:
        try:
            client.of(ProbeKernel).delete(full)
        except NotFoundError:
            raise ProbeKernelError(f"kernel {full} is built in and cannot be removed") from None
    typer.echo(f"kernel {full} is deleted")


def _write(kernel: ProbeKernel, *, unchecked: bool, stands_for: str | None, address: str | None) -> None:
    from controller.apiserver.resources import ProbeKernel  # noqa: PLC0415
    from controller.probing.kernel_files import resource_of  # noqa: PLC0415
    from controller.probing.trying import code_of, tried  # noqa: PLC0415

    if stands_for is not None:
        kernel = replace(kernel, code=code_of(kernel, stands_for))
    if not unchecked:
        for line in tried(kernel):
            typer.echo(line)
    with client_of(address) as client:
        made = client.of(ProbeKernel).create(resource_of(kernel))
    typer.echo(f"kernel {made.metadata.name} is in the store")
