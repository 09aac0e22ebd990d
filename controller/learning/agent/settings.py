"""Settings of an agent; the defaults are the specification's values, and departures must be requested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, get_args, get_type_hints

import msgspec

from controller.learning.errors import LearningError
from dataplane.config import Settings, Strict

Form = Literal["flat", "tokens", "dense"]
Output = Literal["values", "distribution"]
Add = Literal["residual", "noise"]
Loss = Literal["criticality", "criticality-through", "huber", "squared"]
Preset = Literal["specification"]

_PRESETS: Final[Mapping[Preset, Mapping[str, Mapping[str, str]]]] = {
    "specification": {
        "network": {"output": "distribution", "add": "noise"},
        "training": {"loss": "criticality-through"},
    },
}
"""Keys that a preset sets, by section; all others keep their defaults, which are the specification's."""


class NetworkSettings(Strict, frozen=True):
    """Architecture of a network."""

    form: Form = "flat"
    """`flat`: the observation is one token; `tokens`: one token per action; `dense`: fully connected, to compare."""
    hidden: int = 512
    heads: int = 4
    layers: int = 2
    feed_forward: int = 512
    """Width inside an encoder layer; the specification gives none."""
    dropout: float = 0.25
    deviation: float = 0.02
    """Standard deviation of the initial Gaussian weights; biases start at 0, gains of normalisation at 1."""
    output: Output | None = None
    """`values`: a value per action; `distribution`: a softmax over all actions. None: the preset's, else `values`."""
    add: Add | None = None
    """Before each normalisation of a layer: `residual` adds the layer's input; `noise`, in training only, random noise
    in its place. None: the preset's, else `residual`. `dense` has neither."""
    noise: float = 0.1
    """Standard deviation of that noise, relative to the figures that it is added to; the specification gives none."""
    quantiles: int = 1
    """Number of quantiles learned for an action's value; more than 1 departs: distributional learning."""
    guard: float | None = None
    """The fallback decides if a feature is further than this outside the range seen in training: a departure; features
    are between 0 and 1. None: the network decides."""
    dense_layers: int = 3
    """Hidden layers of `dense`; their width gives it as many weights as `flat` has with these settings."""


class TrainingSettings(Settings, frozen=True):
    """Training of a network."""

    discount: float = 0.9
    discount_time_ns: int = 0
    """Time to which `discount` applies: a departure; 0: it applies to each decision."""
    buffer: int = 1024
    start: int = 0
    """Experiences required before training starts; 0: a full buffer."""
    batch: int = 128
    batches: int = 8
    """Batches per training step."""
    publish_every: int = 1024
    """Decisions between two publications of weights to the deciding network."""
    first_publish: int = 0
    """Decisions before the first publication: until then the fallback decides, and training learns from that."""
    drop_duplicates: bool = True
    remove_sampled: bool = True
    """False departs: sampled experiences stay until newer ones replace them."""
    train_every: int = 128
    """Decisions between two steps, if sampled experiences stay; else the buffer must be full again."""
    loss: Loss | None = None
    """None: the preset's, else `criticality`, in which no gradient flows through the factor."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    learning_rate: float = 0.01
    half_steps: int = 0
    """Training steps that halve the learning rate; 0: it stays."""
    momentum: float = 0.0
    """Momentum of SGD."""
    clip: float = 0.0
    """Maximum norm of a gradient; 0: unlimited."""
    double: bool = False
    """Double DQN: the training network picks the action, and the published one supplies its value."""
    prioritised: float = 0.0
    """Power of the last error for sampling experiences; 0: all alike."""
    importance: float = 0.4
    """Power of the weights that compensate for sampling by error."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products in training; bfloat16 departs and needs processor support, else float32 is used."""
    device: str = "cpu"
    """PyTorch device of the training network; decisions always run on a CPU."""
    threads: int = 1
    """PyTorch threads of a training process."""
    nice: int = 10
    """Nice value of a training process."""
    backlog: int = 8192
    """Maximum number of experiences waiting for training; beyond it, new ones are dropped and counted."""


class DecisionSettings(Settings, frozen=True):
    """Settings of decisions."""

    exploration: float = 0.05
    """Probability of choosing a random candidate other than the best one."""
    deadline_ns: int = 3_000_000
    """Deadline of the network's answer; after it the fallback decides."""
    margin: float = 0.0
    """The fallback's choice stands unless the best value exceeds its value by this much: a departure; 0: never."""
    tolerance: float = 0.0
    """The fallback chooses among candidates at most this much below the best: a departure; 0: the best is taken."""
    guard_hold: int = 32
    """With `network.guard`: after an observation outside the range the fallback also takes this many decisions."""
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of weights in products of more than 128 hidden; for `tokens` only if the CPU supports bfloat16."""


class AgentSettings(Strict, frozen=True):
    """An agent.

    `preset: specification` follows the specification to the letter: a distribution over the actions, noise in place of
    residuals, and the loss as its formula stands. The keys that a preset sets can have no other figure.
    """

    preset: Preset | None = None
    network: NetworkSettings = NetworkSettings()
    training: TrainingSettings = TrainingSettings()
    decisions: DecisionSettings = DecisionSettings()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.preset is None:
            return
        if self.preset not in _PRESETS:
            raise LearningError(f"preset is {self.preset!r}, not one of {', '.join(_PRESETS)}", at="preset")
        for section, figures in _PRESETS[self.preset].items():
            settings = getattr(self, section)
            for key, figure in figures.items():
                if getattr(settings, key) not in {None, figure}:
                    at = f"{section}.{key}"
                    has = f"the preset {self.preset} has {figure}, not {getattr(settings, key)}"
                    raise LearningError(f"{at}: {has}", at=at)
            msgspec.structs.force_setattr(self, section, msgspec.structs.replace(settings, **figures))

    def check(self) -> None:
        """Raise LearningError for an invalid figure, with its key."""
        for section in (self.network, self.training, self.decisions):
            _check_choices(section)
        _check_network(self.network)
        _check_training(self.training)
        decisions = self.decisions
        _within("decisions.exploration", decisions.exploration, 0, 1)
        _at_least("decisions.margin", decisions.margin, 0)
        _at_least("decisions.tolerance", decisions.tolerance, 0)
        _within("decisions.guard_hold", decisions.guard_hold, 0, 1 << 24)
        _at_least("decisions.deadline", decisions.deadline_ns, 1)
        _at_least("seed", self.seed, 0)


def _check_choices(section: Strict) -> None:
    """Raise LearningError for a plain string that is not one of a setting's choices."""
    for key, kind in get_type_hints(type(section)).items():
        choices = tuple(_choices(kind))
        words = [choice for choice in choices if choice is not None]
        if words and getattr(section, key) not in choices:
            raise LearningError(f"{key} is {getattr(section, key)!r}, not one of {', '.join(words)}", at=key)


def _choices(kind: Any) -> Iterator[str | None]:  # noqa: ANN401 - a type
    """Yield a setting's choices; None is one of an optional setting."""
    for choice in get_args(kind):
        if choice is type(None):
            yield None
        elif isinstance(choice, str):
            yield choice
        else:
            yield from _choices(choice)


def _check_network(network: NetworkSettings) -> None:
    for key in ("hidden", "heads", "layers", "feed_forward", "quantiles", "dense_layers"):
        _within(f"network.{key}", getattr(network, key), 1, 65536)
    if network.hidden % network.heads:
        raise LearningError(
            f"network.hidden: {network.hidden} is not a multiple of {network.heads} heads", at="network.hidden"
        )
    _within("network.dropout", network.dropout, 0, 0.99)
    _within("network.deviation", network.deviation, 1e-6, 10)
    _within("network.noise", network.noise, 0, 10)
    if network.guard is not None:
        _within("network.guard", network.guard, 0, 1)
    if network.output == "distribution" and network.quantiles > 1:
        raise LearningError(
            f"network.quantiles: {network.quantiles}, but a distribution over the actions has one figure each",
            at="network.quantiles",
        )


def _check_training(training: TrainingSettings) -> None:
    for key in ("buffer", "batch", "batches", "publish_every", "train_every", "backlog"):
        _within(f"training.{key}", getattr(training, key), 1, 1 << 24)
    _within("training.discount", training.discount, 0, 1)
    _within("training.learning_rate", training.learning_rate, 1e-9, 10)
    _within("training.momentum", training.momentum, 0, 0.9999)
    for key in ("prioritised", "importance"):
        _within(f"training.{key}", getattr(training, key), 0, 1)
    _within("training.first_publish", training.first_publish, 0, 1 << 24)
    _within("training.start", training.start, 0, training.buffer)
    _within("training.half_steps", training.half_steps, 0, 1 << 24)
    _within("training.threads", training.threads, 1, 1024)
    _within("training.nice", training.nice, 0, 19)
    _at_least("training.clip", training.clip, 0)
    _at_least("training.discount_time", training.discount_time_ns, 0)


def _within(key: str, figure: float, low: float, high: float) -> None:
    if not low <= figure <= high:
        raise LearningError(f"{key}: {figure} is not between {low} and {high}", at=key)


def _at_least(key: str, figure: float, low: float) -> None:
    if not figure >= low:
        raise LearningError(f"{key}: {figure} is less than {low}", at=key)
