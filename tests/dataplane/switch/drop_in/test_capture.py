"""Capture files of ports: both directions, VLAN tags in place, and log lines."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import NicPort, PcapReader, PortKind, open_port
from dataplane.switch.drop_in.capture import Capture
from tests.network_namespace import network_namespace
from tests.waiting import wait_until

SHORT, LONG = bytes(12) + b"\x88\x99" + b"short" * 10, bytes(12) + b"\x88\x99" + b"long" * 300
TAGGED = bytes(12) + b"\x81\x00\x20\x05\x88\x99" + b"tagged" * 10


def read(path: Path) -> list[bytes]:
    with PcapReader(path) as reader:
        captures = list(reader)
    assert all(abs(capture.time_ns - time.time_ns()) < 600_000_000_000 for capture in captures)
    return [capture.frame for capture in captures]


def sizes(folder: Path) -> tuple[int, int]:
    return (folder / "a1_in.pcap").stat().st_size, (folder / "a1_out.pcap").stat().st_size


@pytest.mark.root
def test_each_direction_has_its_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def both_ends() -> tuple[NicPort, NicPort]:
        return open_port("a1", PortKind.PACKET_V2), open_port("b1", PortKind.PACKET_V2)

    with network_namespace(("a1", "b1")) as namespace, caplog.at_level(logging.INFO, "millrace"):
        near, far = namespaces.call(namespace, both_ends)
        with namespaces.call(namespace, lambda: Capture({7: "a1"}, tmp_path, dump_bytes=16)):
            assert near.send([SHORT, TAGGED]) == 2
            assert far.send([LONG, TAGGED, SHORT]) == 3
            # Flushed at once, for `tcpdump -r` on a live capture.
            wait_until(lambda: min(sizes(tmp_path)) > 24, "nothing is written")
        near.close()
        far.close()
    assert read(tmp_path / "a1_in.pcap") == [LONG, TAGGED, SHORT]
    assert read(tmp_path / "a1_out.pcap") == [SHORT, TAGGED]
    messages = [record.getMessage() for record in caplog.records]
    assert f"Sending packet of length {len(SHORT)} on port 7: {SHORT[:16].hex()}" in messages
    assert f"Received packet of length {len(LONG)} on port 7: {LONG[:16].hex()}" in messages


@pytest.mark.root
def test_what_cannot_be_captured_is_told_in_one_line(tmp_path: Path) -> None:
    with network_namespace(("a1", "b1")) as namespace:
        for device, folder, problem in (("none", tmp_path, "interface none"), ("a1", tmp_path / "no", "No such file")):
            with pytest.raises(PortError, match=problem) as caught:
                namespaces.call(namespace, lambda device=device, folder=folder: Capture({1: device}, folder))  # type: ignore[misc]
            assert "\n" not in str(caught.value)
