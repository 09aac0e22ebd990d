"""Load of a switch soak: two programs, their frames, and random valid changes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from finsy.proto import p4r

from tests.benchmarks.traffic import forwarding
from tests.p4runtime_client import Client, Names, lpm, pipeline_config

POOL_FRAMES = 4_096
MOST_ROUTES, MEMBERS = 100, 4
COPIES = forwarding.PROGRAMS / "copies.json"
COPIES_P4INFO = forwarding.PROGRAMS / "copies.p4info.txtpb"
SESSIONS = GROUPS = range(1, 6)
TARGETS = (1, 2, 2, 9, 300)
"""Ports that copies go to; two of them do not exist."""


class Load(Protocol):
    """A program with its frames and its entries."""

    @property
    def frames(self) -> Sequence[bytes]:
        """Return POOL_FRAMES frames, whole and mangled."""
        ...

    def reset(self) -> None:
        """Commit the program, which empties all tables, and write its first entries."""
        ...

    def change(self) -> int:
        """Write a batch of random changes; return how many."""
        ...

    def read(self) -> str | None:
        """Read entries back; return the problem."""
        ...


class Routes:
    """Random valid changes to the forwarding program's entries."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self._client, self._rng = client, rng
        config = pipeline_config(forwarding.PROGRAM, forwarding.P4INFO)
        self._names = Names(config.p4info)
        self._profile = self._names.profile_id("Inbound.ecmp")
        self._present: set[tuple[int, int]] = set()
        self.frames = _frames(rng)

    def reset(self) -> None:
        """Commit the program, which empties all tables, and write the routes that the frames follow."""
        forwarding.install(self._client)
        self._present = {(forwarding.network(number), 24) for number in range(forwarding.ROUTES)}

    def change(self) -> int:
        """Write a batch of random changes; return how many."""
        updates = [self._change_route() for _ in range(self._rng.randrange(1, 8))]
        updates += [self._change_member(), self._change_group()]
        self._client.write(updates)
        return len(updates)

    def read(self) -> str | None:
        """Read all routes with their counters; return the problem."""
        entry = p4r.TableEntry(table_id=self._names.table_entry("Inbound.routes", [], None).table_entry.table_id)
        entry.counter_data.SetInParent()
        count = len(self._client.read(p4r.Entity(table_entry=entry)))
        return None if count == len(self._present) else f"{count} routes where {len(self._present)} were written"

    def _change_route(self) -> p4r.Update:
        length = self._rng.choice((24, 26, 32))
        address = forwarding.network(self._rng.randrange(forwarding.ROUTES)) + self._rng.randrange(4)
        route = (address >> (32 - length) << (32 - length), length)
        to_group = self._rng.random() < 0.7
        action = p4r.TableAction(action_profile_group_id=1) if to_group else self._to_member()
        kind = p4r.Update.MODIFY if self._rng.random() < 0.3 else p4r.Update.DELETE
        if route not in self._present:
            kind = p4r.Update.INSERT
            if len(self._present) >= MOST_ROUTES + 20:
                route, kind = self._rng.choice(sorted(self._present)), p4r.Update.DELETE
        if kind != p4r.Update.MODIFY:
            self._present ^= {route}
        entity = self._names.table_entry("Inbound.routes", [lpm(1, *route)], action)
        return p4r.Update(type=kind, entity=entity)

    def _to_member(self) -> p4r.TableAction:
        return p4r.TableAction(action_profile_member_id=self._rng.randrange(1, MEMBERS + 1))

    def _change_member(self) -> p4r.Update:
        call = ("Inbound.forward", self._rng.choice((1, 2, 2, 2, 9)))
        if self._rng.random() < 0.2:
            call = ("Inbound.drop", self._rng.randrange(6))
        member = p4r.ActionProfileMember(
            action_profile_id=self._profile,
            member_id=self._rng.randrange(1, MEMBERS + 1),
            action=self._names.action(*call),
        )
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(action_profile_member=member))

    def _change_group(self) -> p4r.Update:
        group = p4r.ActionProfileGroup(action_profile_id=self._profile, group_id=1, max_size=16)
        for member in self._rng.sample(range(1, MEMBERS + 1), self._rng.randrange(MEMBERS + 1)):
            group.members.add(member_id=member, weight=self._rng.randrange(1, 4))
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(action_profile_group=group))


class Copies:
    """The program that clones, multicasts, resubmits, recirculates and truncates, with changing sessions and groups."""

    def __init__(self, client: Client, rng: random.Random) -> None:
        self._client, self._rng = client, rng
        self._present: set[tuple[str, int]] = set()
        self.frames = [self._frame() for _ in range(POOL_FRAMES)]

    def reset(self) -> None:
        """Commit the program; there are no sessions and groups then."""
        self._client.commit(COPIES, COPIES_P4INFO)
        self._present = set()

    def change(self) -> int:
        """Write a batch of random changes; return how many."""
        updates = [self._change() for _ in range(self._rng.randrange(1, 8))]
        self._client.write(updates)
        return len(updates)

    def read(self) -> str | None:
        """Read all sessions and groups; return the problem."""
        everything = (
            p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry()),
            p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry()),
        )
        count = sum(len(self._client.read(p4r.Entity(packet_replication_engine_entry=kind))) for kind in everything)
        written = len(self._present)
        return None if count == written else f"{count} groups and sessions where {written} were written"

    def _change(self) -> p4r.Update:
        key = self._rng.choice(
            [*(("session", number) for number in SESSIONS), *(("group", number) for number in GROUPS)]
        )
        entry = p4r.PacketReplicationEngineEntry()
        if key[0] == "session":
            session = entry.clone_session_entry
            session.session_id = key[1]
            session.packet_length_bytes = self._rng.choice((0, 0, 20, 90))
            session.class_of_service = self._rng.randrange(8)
            replicas = session.replicas
        else:
            entry.multicast_group_entry.multicast_group_id = key[1]
            replicas = entry.multicast_group_entry.replicas
        for instance in range(self._rng.randrange(5)):
            replicas.add(egress_port=self._rng.choice(TARGETS), instance=instance)
        kind = p4r.Update.MODIFY if self._rng.random() < 0.6 else p4r.Update.DELETE
        if key not in self._present:
            kind = p4r.Update.INSERT
        if kind != p4r.Update.MODIFY:
            self._present ^= {key}
        return p4r.Update(type=kind, entity=p4r.Entity(packet_replication_engine_entry=entry))

    def _frame(self) -> bytes:
        rest = self._rng.randbytes(self._rng.choice((11, 60, 300, 1_400)))
        return bytes([self._rng.randrange(11), self._rng.randrange(6), self._rng.randrange(6)]) + rest


def _frames(rng: random.Random) -> Sequence[bytes]:
    """Return frames: half of them whole, the others with changed bytes, cut short, made longer, or noise."""
    whole = forwarding.make_frames()
    frames = []
    for _ in range(POOL_FRAMES):
        frame = bytearray(rng.choice(whole))
        kind = rng.randrange(8)
        if kind == 0:
            for _ in range(rng.randrange(1, 12)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
        elif kind == 1:
            del frame[rng.randrange(14, len(frame)) :]
        elif kind == 2:
            frame += rng.randbytes(rng.randrange(1_300))
        elif kind == 3:
            frame = bytearray(rng.randbytes(rng.randrange(14, 1_500)))
        frames.append(bytes(frame))
    return frames
