"""`millrace switch --io dpdk`: the native loop forwards between DPDK ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.fabric.kernel import namespaces
from dataplane.nic import open_port
from tests.dataplane.nic.conftest import needs_dpdk, receive
from tests.dataplane.switch.test_process import PROGRAMS, Running, namespace

__all__ = ["namespace"]  # a fixture


@needs_dpdk
@pytest.mark.root
def test_frames_are_forwarded_between_dpdk_ports(namespace: str, tmp_path: Path) -> None:
    running = Running(namespace, tmp_path, str(PROGRAMS / "copies.json"), "--io", "dpdk", "--threads", "2")
    try:
        running.wait_ready()
        with (
            namespaces.call(namespace, lambda: open_port("b1")) as first,
            namespaces.call(namespace, lambda: open_port("b2")) as second,
        ):
            frames = [bytes(14) + bytes([number]) * 50 for number in range(100)]
            assert first.send(frames) == 100
            # copies.p4 sends what asks for nothing to port 2, with 12 bytes in front.
            assert [frame[12:] for frame in receive(second, 100)] == frames
    finally:
        running.close()
