"""Distribution of the page's frames to viewers who read at any pace."""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.state.nominal import nominal_snapshot
from collectors.values import LinkCondition, LinkStatus, Snapshot
from controller.apiserver.view import frames
from controller.apiserver.view.frames import Frame
from controller.apiserver.view.state import NetworkView
from controller.apiserver.view.streaming import Broadcast
from controller.common.errors import UnavailableError
from dataplane.topology.families import from_text

TOPOLOGY = from_text("ring:switches=4,hosts=1")
SECOND = 1_000_000_000


class Reader:
    """A viewer, as the page reads the stream."""

    def __init__(self, stream: AsyncGenerator[bytes, None]) -> None:
        self.stream, self.state, self.kinds = stream, np.zeros((3, 0), dtype=np.uint8), list[int]()

    async def read(self) -> None:
        data = await anext(self.stream)
        while data:
            length, kind = struct.unpack_from(">IB", data)
            payload, data = data[5 : 4 + length], data[4 + length :]
            self.kinds.append(kind)
            if kind in {Frame.FULL, Frame.DIFFERENCE}:
                change = np.frombuffer(zlib.decompress(payload[8:]), dtype=np.uint8).reshape(3, -1)
                self.state = change if kind == Frame.FULL else self.state + change
            else:
                json.loads(payload)


def snapshot(utilisation: list[float]) -> Snapshot:
    nominal = nominal_snapshot(TOPOLOGY, 5)
    between = [key for key in nominal.links if {key.src, key.dst} <= set(TOPOLOGY.switch)]
    links = {
        key: replace(nominal.links[key], age_ns=0, utilisation=share)
        for key, share in zip(between, utilisation, strict=True)
    }
    return replace(nominal, links=links)


SHARES = st.lists(st.floats(0, 1), min_size=8, max_size=8)


@given(st.lists(st.one_of(SHARES, st.integers(0, 2)), max_size=20))
def test_viewers_at_any_pace_see_the_newest_state(steps: list[list[float] | int]) -> None:
    async def scenario() -> None:
        view = NetworkView(TOPOLOGY, lambda: SECOND, ["collector"])
        broadcast = Broadcast(view, "build", lambda: SECOND, most=3)
        readers = [Reader(broadcast.open()) for _ in range(3)]
        fresh = {0, 1, 2}
        for reader in readers:
            await reader.read()
        for step in steps:
            if isinstance(step, int):
                if step not in fresh:
                    await readers[step].read()
                    assert (readers[step].state == view.state).all()
                    fresh.add(step)
            else:
                view.take_snapshot(snapshot(step))
                fresh = set()
        for reader in readers:
            await reader.stream.aclose()
        assert broadcast.viewers == 0

    asyncio.run(scenario())


def test_a_lagging_viewer_gets_a_full_state() -> None:
    async def scenario() -> None:
        view = NetworkView(TOPOLOGY, lambda: SECOND, ["collector"])
        broadcast = Broadcast(view, "build", lambda: SECOND, most=1)
        reader = Reader(broadcast.open())
        await reader.read()
        assert reader.kinds[:3] == [Frame.HELLO, Frame.TOPOLOGY, Frame.FULL]
        reader.kinds.clear()
        view.take_snapshot(snapshot([0.5] * 8))
        await reader.read()
        view.take_snapshot(snapshot([0.1] * 8))
        view.take_snapshot(snapshot([0.2] * 8))
        await reader.read()
        assert reader.kinds == [Frame.DIFFERENCE, Frame.FULL]
        assert set(reader.state[0].tolist()) == {50}
        with pytest.raises(UnavailableError, match="its limit of 1 viewers"):
            broadcast.open()

    asyncio.run(scenario())


def test_links_without_telemetry_and_dead_ones_are_told_apart() -> None:
    view = NetworkView(TOPOLOGY, lambda: SECOND, ["collector"])
    nominal = nominal_snapshot(TOPOLOGY, 5)
    dead = view.keys[3]
    view.take_snapshot(replace(nominal, statuses={dead: LinkStatus(LinkCondition.DOWN, 0, "no hello")}))
    assert view.state[0].tolist() == [frames.DOWN if key == dead else frames.SILENT for key in view.keys]
