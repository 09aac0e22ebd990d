"""Probe kernels in the store: permissions to write, and immutable versions."""

from __future__ import annotations

import msgspec
import pytest

from controller.apiserver.resources import Metadata, ProbeKernel
from controller.apiserver.resources.probe_kernel import ProbeKernelSpec
from controller.apiserver.resources.probe_task import ImplementationSpec
from controller.common.errors import ForbiddenError, StaleError
from dataplane.rpc.access import Right, Role
from dataplane.topology.values import DeviceKind
from tests.controller.apiserver.api_server import Play, Served


def kernel(version: int = 1, *, entry: str = "mine:make") -> ProbeKernel:
    code = ImplementationSpec(device=DeviceKind.CPU, library="python", entry=entry)
    spec = ProbeKernelSpec(identifier="mine", version=version, category="hpc", operator="gemm", implementations=(code,))
    return ProbeKernel(metadata=Metadata(name=f"mine.{version}"), spec=spec)


def test_all_read_kernels_and_writing_them_takes_a_right(play: Play) -> None:
    async def run(served: Served) -> None:
        await served.client.of(ProbeKernel).create(kernel())
        for role, subject in ((Role.USER, None), (Role.CENTRE, "c1"), (Role.NODE, "h1"), (Role.PLACEMENT, None)):
            async with await served.client_of(role, subject) as client:
                listing = await client.of(ProbeKernel).list()
                assert [kernel.metadata.name for kernel in listing.items] == ["mine.1"]
                with pytest.raises(ForbiddenError, match="may not create"):
                    await client.of(ProbeKernel).create(kernel(2))
                with pytest.raises(ForbiddenError, match="may not delete"):
                    await client.of(ProbeKernel).delete("mine.1")
        async with await served.client_of(Role.USER, rights=(Right.KERNELS,)) as client:
            await client.of(ProbeKernel).create(kernel(2))
            await client.of(ProbeKernel).delete("mine.2")
            with pytest.raises(ForbiddenError, match="it belongs to another user"):
                await client.of(ProbeKernel).delete("mine.1")

    play(run)


def test_a_version_stays_as_it_was_and_bears_its_name(play: Play) -> None:
    async def run(served: Served) -> None:
        kernels = served.client.of(ProbeKernel)
        made = await kernels.create(kernel())
        with pytest.raises(StaleError, match=r"ProbeKernel mine\.1 cannot change: results name it"):
            await kernels.replace(ProbeKernel(metadata=made.metadata, spec=kernel(entry="other:make").spec))

    play(run)


def test_name_with_another_version_is_refused() -> None:
    wrong = b'{"metadata": {"name": "mine.3"}, "spec": ' + msgspec.json.encode(kernel().spec) + b"}"
    with pytest.raises(msgspec.ValidationError, match=r"version 1 of kernel mine must be named mine\.1"):
        msgspec.json.decode(wrong, type=ProbeKernel)
