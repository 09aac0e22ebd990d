"""A switch that runs the compiled program, whichever it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeAlias

from tests.p4.entries import Item, Role

BUILD = Path(__file__).parents[2] / "p4" / "build"
PROGRAM, P4INFO = BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"
AGGREGATION = (BUILD / "fabric_aggregation.json", BUILD / "fabric_aggregation.p4info.txtpb")

Sent: TypeAlias = list[tuple[int, bytes]]
"""Frames by the port they left on, ordered by port; frames of one port in the order they left."""


class Target(Protocol):
    """A switch with ports 1 to 4 and a CPU port, loaded with the fabric program."""

    name: str
    shortest_frame: int
    """Bytes; shorter frames cannot reach or leave the switch."""

    def reset(self) -> None:
        """Forget all entries; counters start from zero. Registers may go on."""
        ...

    def write(self, items: Iterable[Item]) -> None:
        """Add entries, set default actions, groups and the clone session."""
        ...

    def send(self, port: int, *frames: bytes, expect: int) -> Sent:
        """Inject frames on a port and return the output; packets to the CPU come as port 255.

        `expect` is the expected number of frames: wait for a real switch until then and a little longer.
        """
        ...

    def packet_out(self, payload: bytes, *, expect: int) -> Sent:
        """Inject a frame, with its packet_out header, on the CPU port."""
        ...

    def count(self, counter: str) -> int:
        """Return a counter's packets since the reset, by its alias."""
        ...

    def learned(self, *, expect: int) -> list[tuple[int, ...]]:
        """Return the digest messages since the last call; wait for as many as `expect` says."""
        ...


def pass_through(target: Target, role: Role, port: int, *frames: bytes, expect: int) -> Sent:
    """Set the target up as `role`, and send the frames through it."""
    target.reset()
    target.write(role.items())
    return target.send(port, *frames, expect=expect)


def frame_on(sent: Sent, port: int) -> bytes:
    """Return the one frame that left on a port."""
    frames = [data for out_port, data in sent if out_port == port]
    assert len(frames) == 1, f"{len(frames)} frames on port {port}: {sent}"
    return frames[0]
