"""An input named by a user, `KIND:FILE`, ready to be played: an environment, its rules, its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from msgspec import structs

from controller.learning.agent.purpose import Kind
from controller.learning.agent.records import Checkpoint, check_for, load_checkpoint
from controller.learning.agent.settings import AgentSettings, Preset
from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.view import PoolView
from controller.learning.errors import LearningError
from controller.learning.heuristics.named import job_rules, pool_rules
from controller.learning.inputs.blocks import BlockSettings, block_input
from controller.learning.inputs.bursty import BurstySettings, bursty_input
from controller.learning.inputs.graphs import GraphSettings, graph_input
from controller.learning.inputs.jobs import JobSettings, read_jobs
from controller.learning.inputs.ordering import Ordering, OrderingSettings
from controller.learning.inputs.values import Graphs, PoolInput
from controller.learning.training.figures import Figures, Tally
from controller.learning.values import Chooser, Environment
from dataplane.config import Strict, load, load_document

View = TypeVar("View")
KINDS: Final = ("blocks:FILE", "spotri:FILE", "swf:FILE", "bursty")


class LearningSettings(Strict, frozen=True):
    """Settings of training, trying and comparing: the agent's, and those of each kind of input.

    `pool` is of the environment in which an action is a node, `ordering` of that in which it is a waiting job. With
    `agent.preset: specification` both show its six features alone and have its reward: `network_features` and
    `waits_and_sizes` are off.
    """

    agent: AgentSettings = AgentSettings()
    pool: PoolSettings = PoolSettings()
    ordering: OrderingSettings = OrderingSettings()
    blocks: BlockSettings = BlockSettings()
    spotri: GraphSettings = GraphSettings()
    swf: JobSettings = JobSettings()
    bursty: BurstySettings = BurstySettings()

    def __post_init__(self) -> None:
        if self.agent.preset is None:
            return
        for section, keys in _DEPARTURES.items():
            settings = getattr(self, section)
            plain = type(settings)()
            for key in keys:
                if getattr(settings, key) != getattr(plain, key):
                    at = f"{section}.{key}"
                    raise LearningError(f"{at}: the preset {self.agent.preset} has no {key}", at=at)
            structs.force_setattr(self, section, structs.replace(settings, **{_EXTENSIONS[section]: False}))

    def with_preset(self, preset: Preset) -> LearningSettings:
        """Return the settings with a preset; raise LearningError for a figure that contradicts it, with its key."""
        return structs.replace(self, agent=structs.replace(self.agent, preset=preset))


_DEPARTURES: Final[Mapping[str, tuple[str, ...]]] = {
    "pool": ("load_features", "gain", "port_hz", "slot_hz", "foretold"),
    "ordering": ("job_features", "foretold", "gain", "foresight"),
}
"""Keys that depart from the specification's observation and reward, by section."""
_EXTENSIONS: Final[Mapping[str, str]] = {"pool": "network_features", "ordering": "waits_and_sizes"}
"""Features beyond the six that are on by default."""


@dataclass(frozen=True, slots=True)
class Given(Generic[View]):
    """An input that can be played: `rules` makes its heuristics by a seed, `settle` the figures of all decisions.

    With `has_graph` graphs of tasks are submitted, and the figures of both differ.
    """

    name: str
    kind: Kind
    environment: Environment[View]
    rules: Callable[[int], dict[str, Chooser[View]]]
    settle: Callable[[Tally], Figures]
    has_graph: bool = False


def load_settings(path: Path, preset: Preset | None = None) -> LearningSettings:
    """Return the settings of a file, with a preset if one is named.

    Raises ConfigError or LearningError with the file and the key, also for a figure that contradicts a preset.
    """
    try:
        settings = load(path, LearningSettings)
        settings = settings if preset is None else settings.with_preset(preset)
        settings.agent.check()
        if settings.agent.preset is not None:
            _check_extensions(path, settings.agent.preset)
    except LearningError as error:
        raise _located(path, error) from error
    return settings


def _check_extensions(path: Path, preset: Preset) -> None:
    """Raise LearningError for features beyond the six that a file switches on by name."""
    sections = load_document(path, dict[str, Any]).value
    for section, key in _EXTENSIONS.items():
        if (sections.get(section) or {}).get(key):
            raise LearningError(f"{section}.{key}: the preset {preset} has no {key}", at=f"{section}.{key}")


def _located(path: Path, error: LearningError) -> LearningError:
    """Return the error for a figure of a settings file, with the file, the line and the whole key."""
    document = load_document(path, dict[str, Any])
    key = next((key for key in _keys(document.value) if error.at and f".{key}".endswith(f".{error.at}")), "")
    if not key:
        return LearningError(f"{path}: {error}", at=error.at)
    return LearningError(str(document.error(str(error).removeprefix(f"{error.at}: "), key)), at=key)


def _keys(section: dict[str, Any], before: str = "") -> Iterator[str]:
    """Yield the whole key of every figure."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _keys(value, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def checkpoint_for(given: Given[Any], path: Path, loaded: Checkpoint | None = None) -> Checkpoint:
    """Return a file's checkpoint, or `loaded` instead; LearningError, with the file, if it is for another input."""
    loaded = load_checkpoint(path) if loaded is None else loaded
    return check_for(loaded, path, given.kind, given.environment.start(0))


def read_given(text: str, settings: LearningSettings, seed: int, skipped: Counter[str] | None = None) -> Given[Any]:
    """Return the input that `text` names, drawn by the seed if it is synthetic.

    What its file has and the input does not is counted in `skipped` by reason.

    Raises LearningError for an unknown kind, WorkloadError with file and line for a malformed file.
    """
    kind, _, file = text.partition(":")
    if kind == "bursty" and not file:
        return given_of_pool(bursty_input(seed, settings.bursty), settings)
    if not file or kind not in {"blocks", "spotri", "swf"}:
        raise LearningError(f"input {text!r}: its kind must be one of {', '.join(KINDS)}")
    match kind:
        case "blocks":
            return given_of_pool(block_input(Path(file), settings.blocks, skipped), settings)
        case "spotri":
            return given_of_pool(graph_input(Path(file), settings.spotri), settings)
        case _:
            return _of_jobs(Ordering(read_jobs(Path(file), settings.swf, skipped), settings.ordering))


def given_of_pool(made: PoolInput, settings: LearningSettings) -> Given[PoolView]:
    """Return an input whose actions are nodes, with the pool of the settings."""
    made = replace(made, settings=settings.pool)
    slots = sum(engine.slots for node in made.system.nodes for engine in node.engines)
    graphs = Graphs.of(made.workload)
    return Given(
        made.name,
        "nodes",
        Pool(made.system, made.workload, made.settings),
        lambda seed: pool_rules(made, seed),
        lambda tally: tally.of_pool(slots, graphs),
        made.has_graph,
    )


def _of_jobs(ordering: Ordering) -> Given[Ordering]:
    return Given(
        ordering.jobs.name,
        "jobs",
        ordering,
        lambda seed: job_rules(ordering.settings, seed),
        lambda tally: tally.of_jobs(ordering),
    )
