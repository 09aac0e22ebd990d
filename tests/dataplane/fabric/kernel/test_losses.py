"""Losses behind a device: counted, at the configured share, and invisible to the sender."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from dataplane.errors import FabricError
from dataplane.fabric.kernel import links, namespaces
from dataplane.fabric.kernel.losses import Losses
from dataplane.linux import ask_receive_buffer

pytestmark = pytest.mark.root
ETHER_TYPE = 0x88B5
FRAME = b"\xff" * 12 + ETHER_TYPE.to_bytes(2, "big") + bytes(50)


@pytest.fixture
def cable() -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between their devices e0."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    names = (f"mrloss{os.getpid()}-a", f"mrloss{os.getpid()}-b")
    try:
        for name in names:
            namespaces.create(name)
            links.silence(name)
        links.connect(*(links.CableEnd(name, "e0", 2 << 40 | index, 1500) for index, name in enumerate(names, 1)))
        for name in names:
            links.bring_up(name, ["e0"])
        yield names
    finally:
        for name in names:
            namespaces.remove(name)


def open_raw(namespace: str) -> socket.socket:
    def make() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHER_TYPE))
        ask_receive_buffer(opened, 1 << 24)
        opened.bind(("e0", ETHER_TYPE))
        opened.setblocking(False)
        return opened

    return namespaces.call(namespace, make)


def crossed(cable: tuple[str, str], frames: int) -> int:
    """Send frames; return how many arrive. None is refused."""
    with open_raw(cable[0]) as sender, open_raw(cable[1]) as receiver:
        for _ in range(frames):
            assert sender.send(FRAME) == len(FRAME)
        received = 0
        with suppress(BlockingIOError):
            while receiver.recv(100):
                received += 1
        return received


@pytest.mark.parametrize("loss_ppb", [1, 10**7, 75 * 10**7, 10**9 - 1, 10**9])
def test_a_device_loses_its_share(cable: tuple[str, str], loss_ppb: int) -> None:
    share, frames = loss_ppb / 10**9, 5_000
    with Losses(cable[0], "e0", loss_ppb) as losses:
        received = crossed(cable, frames)
        assert received + losses.lost == frames
        assert abs(losses.lost - frames * share) <= 7 * (frames * share * (1 - share)) ** 0.5 + 1
        assert crossed((cable[1], cable[0]), 100) == 100, "the other way is not touched"
    if loss_ppb == 10**9:
        assert crossed(cable, 100) == 0, "the device goes on losing when nobody counts any more"
    with pytest.raises(FabricError, match="losses are not counted any more"):
        _ = losses.lost


def test_a_device_that_loses_already_is_named(cable: tuple[str, str]) -> None:
    with Losses(cable[0], "e0", 1), pytest.raises(FabricError, match=f"{cable[0]} e0: a loss of 5% needs .*cls_bpf"):
        Losses(cable[0], "e0", 5 * 10**7)
