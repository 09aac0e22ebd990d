"""A switch under sixteen concurrent requests of maximum size: they do not cost it gigabytes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from dataplane.local.deadline import local_timeout
from dataplane.switch.p4runtime.server import MAX_MESSAGE_BYTES

_AT_ONCE = 16
_MOST_MIB = 500
"""Two requests of 32 MiB, several times over, plus the interpreter; sixteen would take a gigabyte and more."""


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Yield address and process id of a switch without a program."""
    address = f"unix:{tmp_path}/switch.sock"
    command = [sys.executable, "-m", "dataplane.switch.process", "--no-p4", "--device-id", "1"]
    command += ["--", "--grpc-server-addr", address, "--cpu-port", "255"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert next((line for line in process.stderr if "ready" in line), None) is not None
        yield address, process.pid
        process.terminate()
        process.communicate()


def peak_mib(pid: int) -> int:
    """Return the most memory that a process has had."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) >> 10


def test_large_requests_share_a_budget(switch: tuple[str, int]) -> None:
    address, pid = switch
    request = p4r.SetForwardingPipelineConfigRequest(device_id=1)
    request.config.p4_device_config = bytes(MAX_MESSAGE_BYTES - 100)

    async def attack() -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = p4r_grpc.P4RuntimeStub(channel)  # finsy's stubs have no types of asynchronous calls
            codes = await asyncio.gather(*(refused(stub, request) for _ in range(_AT_ONCE)))
            assert set(codes) <= {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED}
            await stub.Capabilities(p4r.CapabilitiesRequest())
            request.config.p4_device_config = bytes(MAX_MESSAGE_BYTES)
            assert await refused(stub, request) is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def main() -> None:
        async with local_timeout(120, "an attack"):
            await attack()

    asyncio.run(main())
    assert peak_mib(pid) < _MOST_MIB


async def refused(stub: Any, request: p4r.SetForwardingPipelineConfigRequest) -> grpc.StatusCode:
    """Return what a pipeline is refused with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.SetForwardingPipelineConfig(request)
    code: grpc.StatusCode = caught.value.code()
    return code
