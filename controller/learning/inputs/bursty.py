"""A synthetic family by seed: tasks arrive in bursts and use popular data, and popularity drifts."""

from __future__ import annotations

import math
import random
from itertools import accumulate

from controller.learning.environment.values import ANY_ENGINE, EngineKind, Task, Workload
from controller.learning.errors import LearningError
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import PoolInput
from dataplane.clock import NS_PER_S
from dataplane.config import Settings
from dataplane.config.quantities import key_of


class BurstySettings(Settings, frozen=True):
    """A Poisson process whose rate is `quiet_hz` or, in bursts, `burst_hz`, for exponential times.

    Each task uses 1 to `most_objects` of `objects`, each drawn by a Zipf law of exponent `zipf`; after every `drift`
    tasks the ranks move on by a tenth of the objects. A share `write_share` of tasks write what they use. Operations
    are log-normal with the mean `mean_operations`; of each task a drawn part of them are floats, and a share
    `cpu_only` needs a CPU.
    """

    tasks: int = 20_000
    quiet_hz: float = 5_000.0
    burst_hz: float = 60_000.0
    quiet_s: float = 0.02
    burst_s: float = 0.005
    objects: int = 8192
    object_bytes: int = 65536
    most_objects: int = 4
    zipf: float = 1.1
    drift: int = 2000
    write_share: float = 0.3
    mean_operations: float = 20_000_000.0
    cpu_only: float = 0.3
    system: PoolSystem = PoolSystem()

    def __post_init__(self) -> None:
        for name in ("tasks", "objects", "object_bytes", "most_objects", "drift"):
            if getattr(self, name) < 1:
                raise LearningError(f"{name} is {getattr(self, name)}, less than 1", at=name)
        for name in ("quiet_hz", "burst_hz", "quiet_s", "burst_s", "mean_operations"):
            if not 0 < getattr(self, name) < math.inf:
                key = key_of(name) or name
                raise LearningError(f"{key} is {getattr(self, name)}, not above 0", at=key)
        for name in ("write_share", "cpu_only"):
            if not 0 <= getattr(self, name) <= 1:
                raise LearningError(f"{name} is {getattr(self, name)}, not between 0 and 1", at=name)
        if not 0 <= self.zipf <= 10 or self.most_objects > self.objects:
            raise LearningError(
                f"cannot draw {self.most_objects} of {self.objects} objects with zipf {self.zipf}", at="zipf"
            )


def bursty_input(seed: int, settings: BurstySettings | None = None) -> PoolInput:
    """Return the family's input for a seed."""
    settings = settings or BurstySettings()
    rng = random.Random(f"bursty/{seed}")
    weights = list(accumulate(1 / rank**settings.zipf for rank in range(1, settings.objects + 1)))
    times_ns = _arrivals_ns(rng, settings)
    tasks = [_task(rng, settings, weights, number, time_ns) for number, time_ns in enumerate(times_ns)]
    workload = Workload.of(tasks, [settings.object_bytes] * settings.objects)
    return PoolInput(f"bursty-{seed}", settings.system.made(), workload)


def _arrivals_ns(rng: random.Random, settings: BurstySettings) -> list[int]:
    """Return times of a Markov-modulated Poisson process; the rest of a gap is redrawn when the rate changes."""
    arrivals: list[int] = []
    now_s, is_burst = 0.0, False
    change_s = rng.expovariate(1 / settings.quiet_s)
    while len(arrivals) < settings.tasks:
        following_s = now_s + rng.expovariate(settings.burst_hz if is_burst else settings.quiet_hz)
        if following_s < change_s:
            now_s = following_s
            arrivals.append(int(now_s * NS_PER_S))
            continue
        now_s, is_burst = change_s, not is_burst
        change_s += rng.expovariate(1 / (settings.burst_s if is_burst else settings.quiet_s))
    return arrivals


def _task(rng: random.Random, settings: BurstySettings, weights: list[float], number: int, time_ns: int) -> Task:
    moved = number // settings.drift * max(1, settings.objects // 10)
    ranks = rng.choices(range(settings.objects), cum_weights=weights, k=rng.randint(1, settings.most_objects))
    used = tuple(dict.fromkeys((rank + moved) % settings.objects for rank in ranks))
    is_write = rng.random() < settings.write_share
    # A lognormal's mean is exp(mu + sigma^2 / 2), hence the half.
    operations = rng.lognormvariate(math.log(settings.mean_operations) - 0.5, 1.0)
    floats = round(operations * rng.random())
    return Task(
        time_ns,
        reads=() if is_write else used,
        writes=used if is_write else (),
        float_operations=floats,
        int_operations=round(operations) - floats,
        kinds=EngineKind.CPU.bit if rng.random() < settings.cpu_only else ANY_ENGINE,
    )
