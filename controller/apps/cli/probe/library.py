"""The library of probe kernels for commands: the built-in ones, and those of the store if there is one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from controller.apps.cli.cluster.api import client_of

if TYPE_CHECKING:
    from controller.probing.library import KernelLibrary


def library_of(address: str | None, *, tells: bool = False) -> KernelLibrary:
    """Return the library; only built-in kernels if no API is named and none is at the usual socket.

    With `tells` stderr says so.
    """
    from controller.apiserver.client import find_place  # noqa: PLC0415
    from controller.probing.library import KernelLibrary  # noqa: PLC0415

    socket = find_place(address).socket
    is_named = address is not None or bool(os.environ.get("MILLRACE_API"))
    if is_named or socket is None or Path(socket).exists():
        return stored_library(address)
    if tells:
        typer.echo("no API server at the default socket: using the built-in kernels", err=True)
    return KernelLibrary()


def stored_library(address: str | None) -> KernelLibrary:
    """Return the library with the store's kernels; raise UnavailableError if there is no API."""
    from controller.apiserver.resources import ProbeKernel  # noqa: PLC0415
    from controller.probing.kernel_files import of_spec  # noqa: PLC0415
    from controller.probing.library import KernelLibrary  # noqa: PLC0415

    with client_of(address) as client:
        kernels = client.of(ProbeKernel).list()
    return KernelLibrary(of_spec(kernel.spec) for kernel in kernels.items)
