"""The four inputs, what an agent learns each of them by, and for how long.

All settings that are not written here are defaults: of an agent the specification's, of an input those of
docs/cluster/learning-environment.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from msgspec.structs import replace

from controller.learning.agent.settings import (
    AgentSettings,
    DecisionSettings,
    NetworkSettings,
    TrainingSettings,
)
from controller.learning.environment.settings import Gain, PoolSettings
from controller.learning.inputs.blocks import BlockSettings
from controller.learning.inputs.jobs import JobSettings
from controller.learning.inputs.ordering import Gain as JobGain
from controller.learning.inputs.ordering import OrderingSettings
from controller.learning.oracles.improving import Plays
from controller.learning.training.given import Given, LearningSettings, read_given

DATA: Final = Path(__file__).parents[4] / "shared" / "data"
SEEDS: Final = (0, 1, 2)
Form = Literal["tokens", "dense", "flat", "specification"]
FORMS: Final[tuple[Form, ...]] = ("tokens", "dense", "flat", "specification")
"""Forms of the network, with what each case departs by; the last one is the preset, which departs by nothing."""


@dataclass(frozen=True, slots=True)
class Windows:
    """`count` windows of `tasks` decisions, evenly apart: rules, agents and a beam of `width` ways begin there alike.

    They begin at saved moments of a run that `driver` decides. Of a log each window is jobs of their own, all submitted
    at once.
    """

    count: int = 6
    tasks: int = 96
    width: int = 8
    driver: str = "round-robin"


@dataclass(frozen=True, slots=True)
class Case:
    """An input: `file` in the folder of published data, as `kind` reads it; none where a seed draws it.

    `fallback` decides while nothing is learned; `plain` in its place where its figures are not shown. After each
    `examined_every` episodes an agent is examined by a lesson of its own, and its best state is kept.
    Agents learn with the settings `learning` for `episodes`, and are tried, beside the rules, with `tried`. The oracle
    looks at windows, or, where `windows` are the plays of a search, at the whole input.
    """

    name: str
    kind: str
    learning: LearningSettings
    tried: LearningSettings
    episodes: int
    examined_every: int = 0
    fallback: str = "data-local"
    plain: str = ""
    file: str = ""
    windows: Windows | Plays = Windows()

    @property
    def is_here(self) -> bool:
        """True if the case's file is present, or if it needs none."""
        return not self.file or (DATA / self.file).exists()

    def given(self, seed: int, form: Form | None = None, *, quick: bool = False) -> Given[Any]:
        """Return the input as it is tried with a seed, by an agent of a form or by rules."""
        return self._read(of_form(self.tried, form), seed, quick=quick)

    def lesson(self, seed: int, episode: int, form: Form, *, quick: bool = False) -> Given[Any]:
        """Return the input as it is learned in an episode: drawn otherwise than those that are tried."""
        return self._read(of_form(self.learning, form), 1000 * (seed + 1) + episode, quick=quick)

    def agent(self, form: Form, seed: int) -> AgentSettings:
        """Return an agent's settings: all forms have the same but for the network's form, and the preset its own."""
        if form == "specification":
            return AgentSettings(preset="specification", seed=seed)
        settings = self.learning.agent
        return replace(settings, network=replace(settings.network, form=form), seed=seed)

    def fallback_of(self, form: Form) -> str:
        """Return the rule that decides while an agent of a form has learned nothing."""
        return self.plain or self.fallback if form == "specification" else self.fallback

    def _read(self, settings: LearningSettings, seed: int, *, quick: bool) -> Given[Any]:
        text = f"{self.kind}:{DATA / self.file}" if self.file else self.kind
        return read_given(text, shortened(settings) if quick else settings, seed)


def of_form(settings: LearningSettings, form: Form | None) -> LearningSettings:
    """Return settings as a form needs them: the places of a window without a job are seen where outputs are fixed."""
    if form == "specification":
        return _to_the_letter(settings)
    if form not in {"dense", "flat"}:
        return settings
    return replace(settings, ordering=replace(settings.ordering, empty_places=True))


def _to_the_letter(settings: LearningSettings) -> LearningSettings:
    """Return settings with the preset: of the environments only units, and when a job is chosen, are the case's."""
    ordering = OrderingSettings(early=settings.ordering.early, episode=settings.ordering.episode)
    pool = PoolSettings(latency_unit_ns=settings.pool.latency_unit_ns)
    return replace(settings, agent=AgentSettings(preset="specification"), pool=pool, ordering=ordering)


def shortened(settings: LearningSettings) -> LearningSettings:
    """Return settings of inputs of few tasks, to see that all of it works."""
    return replace(
        settings,
        blocks=replace(settings.blocks, requests=1500),
        swf=replace(settings.swf, jobs=300),
        bursty=replace(settings.bursty, tasks=1500),
    )


def changed(settings: Any, path: str, value: object) -> Any:
    """Return settings with another figure at a path."""
    name, _, rest = path.partition(".")
    return replace(settings, **{name: changed(getattr(settings, name), rest, value) if rest else value})


AGENT: Final = AgentSettings(
    network=NetworkSettings(form="tokens", hidden=32, feed_forward=64, dropout=0.0),
    training=TrainingSettings(
        optimiser="adam",
        learning_rate=0.001,
        loss="huber",
        remove_sampled=False,
        train_every=256,
        publish_every=256,
        clip=1.0,
    ),
    decisions=DecisionSettings(precision="float32"),
)
"""Agent for moving congestion, and, with further settings, for batch logs."""

_REQUESTS: Final = LearningSettings(
    agent=AgentSettings(
        network=NetworkSettings(
            form="tokens", hidden=32, heads=2, layers=1, feed_forward=64, dropout=0.0, deviation=0.2
        ),
        training=TrainingSettings(
            discount=0.0,
            buffer=20_000,
            start=2048,
            batches=2,
            train_every=64,
            publish_every=512,
            remove_sampled=False,
            drop_duplicates=False,
            optimiser="adam",
            learning_rate=0.003,
            half_steps=200,
            loss="huber",
        ),
        decisions=DecisionSettings(precision="float32"),
    ),
    pool=PoolSettings(load_features=True, gain=Gain.LOG_RESPONSE, port_hz=10_000.0),
)
"""Settings for requests that choose a node: a decision is judged by its own response, and by the wait that it causes
for others."""


def _blocks() -> LearningSettings:
    """Return what block requests are learned by: the rule `foretold-local` decides half of them, and then chooses
    among nodes that the network thinks at most twice as costly as the best: a weak network alone fills ports.

    Costs are shown, by which that rule goes.
    """
    agent = _REQUESTS.agent
    training = replace(
        agent.training,
        buffer=60_000,
        start=10_000,
        batches=4,
        publish_every=1024,
        first_publish=10_000,
        half_steps=125,
    )
    decisions = replace(agent.decisions, exploration=0.05, tolerance=1.0)
    pool = replace(_REQUESTS.pool, foretold=True)
    return replace(_REQUESTS, agent=replace(agent, training=training, decisions=decisions), pool=pool)


_GRAPHS: Final = LearningSettings(
    agent=AgentSettings(
        network=NetworkSettings(form="tokens", hidden=32, layers=1, feed_forward=32, dropout=0.0, deviation=0.05),
        training=TrainingSettings(
            discount=0.0,
            buffer=4096,
            start=1024,
            train_every=66,
            publish_every=330,
            remove_sampled=False,
            drop_duplicates=False,
            optimiser="adam",
            learning_rate=0.002,
            half_steps=80,
            clip=1.0,
            loss="huber",
        ),
        decisions=DecisionSettings(precision="float32"),
    ),
    pool=PoolSettings(load_features=True, gain=Gain.RESPONSE, port_hz=6000.0, latency_unit_ns=2_000_000),
)


def _jobs() -> LearningSettings:
    """Return what jobs are ordered by: the first half of a log is learned from, in drawn parts, the second is tried.

    Beside the rule `rollout`, whose figures are shown, and which decides the first ten episodes.
    """
    training = replace(
        AGENT.training,
        discount=0.0,
        buffer=4096,
        batch=64,
        batches=4,
        train_every=64,
        publish_every=512,
        first_publish=2560,
        half_steps=40,
        drop_duplicates=False,
    )
    network = replace(AGENT.network, layers=1, deviation=0.1)
    decisions = replace(AGENT.decisions, exploration=0.15, margin=0.25)
    ordering = OrderingSettings(
        early=False,
        empty_places=False,
        job_features=True,
        foretold=True,
        gain=JobGain.FORETOLD,
        gain_hours=10.0,
        foresight=True,
        episode=256,
    )
    agent = replace(AGENT, network=network, training=training, decisions=decisions)
    return LearningSettings(agent=agent, ordering=ordering, swf=JobSettings(jobs=5000))


def _jobs_tried() -> LearningSettings:
    learned = _jobs()
    ordering = replace(learned.ordering, gain=JobGain.SLOWDOWN, foresight=False, episode=0)
    return replace(learned, ordering=ordering, swf=JobSettings(first=5000))


_CASES: Final = (
    Case(
        "cloudphysics",
        "blocks",
        replace(_blocks(), blocks=BlockSettings(first=60_000, requests=20_000)),
        _blocks(),
        episodes=1,
        file="cloudPhysicsIO.csv",
        fallback="foretold-local",
        plain="round-robin",
        windows=Windows(count=4),
    ),
    Case("bursty", "bursty", _REQUESTS, _REQUESTS, episodes=2, windows=Windows(4, 96, 16)),
    Case(
        "spotri",
        "spotri",
        _GRAPHS,
        _GRAPHS,
        episodes=24,
        examined_every=1,
        file="hetero_spotri_spotri-320-10.txt",
        fallback="least-loaded",
        windows=Plays(800, 800, 6000),
    ),
    Case(
        "lublin",
        "swf",
        _jobs(),
        _jobs_tried(),
        episodes=80,
        file="lublin_256.swf",
        fallback="rollout",
        plain="shortest-fitting-first",
        windows=Windows(tasks=48, width=4),
    ),
)
CASES: Final[Mapping[str, Case]] = {case.name: case for case in _CASES}
