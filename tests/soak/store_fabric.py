"""Named content in virtual time while everything happens: loss, switches and controllers that start again, evictions.

Readers and writers ask for a few names without a pause, the switch has room for fewer, and the popular ones change. A
read that began after a write was acknowledged, or after another read had seen it, must not return anything older; and
all values must be whole.

    .venv/bin/python tests/soak/store_fabric.py --seconds 60 --seed 1
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.network.content.settings import StoreSettings
from dataplane.store.dialogues import Content, reading, writing
from dataplane.store.talk import Talk
from dataplane.switch.compiled.pipeline import compiled_pipeline
from tests.integration.test_virtual_store import rack
from tests.integration.virtual_store import MS, US, Client, Server, World

NAMES = [f"/soak/{number}" for number in range(6)]
COPIES = 6
RESTARTS = 0.0002
"""Probability of each kind of restart per step."""
LENGTHS = (10, 900, 1000, 1000, 1001)


@dataclass
class Soak:
    """Soak of the store; `known` is the newest version of each name that any client knows."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    known: dict[str, int] = field(default_factory=dict)
    values: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        settings = StoreSettings(producers=("h4",), interval_ns=10 * MS, copies=COPIES)
        self.world = World(rack(), settings, loss=0.03, seed=self.seed, pipeline_factory=compiled_pipeline)
        self.server = Server(self.world, "h4")
        self.clients = [Client(self.world, host, "h4", port=31_000 + index) for index, host in enumerate(self._hosts())]
        self.talks: list[tuple[Talk, str, int, bytes | None]] = []
        for name in NAMES:
            self._publish(name)

    def step(self) -> None:
        """Start an action, let time pass, and check finished ones."""
        if len(self.talks) < 4:
            self._begin()
        self.world.run(self.chance.randrange(1, 100) * US)
        for entry in list(self.talks):
            if entry[0].is_over:
                self.talks.remove(entry)
                self._ended(*entry)
        chance = self.chance.random()
        if chance < RESTARTS:
            self.world.restart("s1")
            self.world.run(self.chance.randrange(5) * MS)
            self.world.connect("s1")
            self.counts["switch restarts"] += 1
        elif chance < 2 * RESTARTS:
            self.world.forget()
            self.world.connect("s1")
            self.counts["controller restarts"] += 1
        elif chance < 3 * RESTARTS:
            # All committed content is back; packets to and from the producer are lost.
            self.server.start_again()
            self.counts["producer restarts"] += 1

    def _begin(self) -> None:
        phase = self.world.fabric.now_ns // (100 * MS)
        names = [NAMES[(phase + index) % len(NAMES)] for index in range(len(NAMES))]
        name = self.chance.choices(names, (8, 6, 4, 1, 1, 1))[0]
        client = self.chance.choice(self.clients)
        if self.chance.random() < 0.8:
            self.talks.append((client.begin(reading(name)), name, self.known[name], None))
        else:
            value = self._value(name)
            self.talks.append((client.begin(writing(name, value)), name, self.known[name], value))

    def _ended(self, talk: Talk, name: str, least: int, value: bytes | None) -> None:
        assert talk.error is None, talk.error
        if value is not None:
            assert isinstance(talk.result, int)
            assert talk.result > least
            assert self.values.setdefault((name, talk.result), value) == value
            version = talk.result
            self.counts["writes"] += 1
        else:
            assert isinstance(talk.result, Content)
            version = talk.result.version
            assert version >= least, f"{name}: version {version} was read after {least} was known"
            seen = self.values.setdefault((name, version), talk.result.value)
            assert seen == talk.result.value, f"{name}: version {version} has two values"
            self.counts["reads"] += 1
        self.known[name] = max(self.known[name], version)

    def _publish(self, name: str) -> None:
        value = self._value(name)
        self.known[name] = self.server.producer_core.publish(name, value, self.world.fabric.now_ns)
        self.values[name, self.known[name]] = value

    def _value(self, name: str) -> bytes:
        return name.encode() + self.chance.randbytes(self.chance.choice(LENGTHS))

    @staticmethod
    def _hosts() -> list[str]:
        return ["h1", "h2", "h3"] * 2


def main() -> None:
    """Soak, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    soak, end_s = Soak(arguments.seed), time.monotonic() + arguments.seconds
    while time.monotonic() < end_s:
        soak.step()
    asked = soak.server.interests
    print(json.dumps({**soak.counts, "asked_of_the_producer": asked, "virtual_s": soak.world.fabric.now_ns / 1e9}))


if __name__ == "__main__":
    main()
