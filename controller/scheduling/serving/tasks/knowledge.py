"""Knowledge about types and places, derived from the view: for plans and for ordering probes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zlib import crc32

from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.task import TaskPhase
from controller.cluster.cost_map import CostMap
from controller.scheduling.serving.tasks.builds import BENCHMARK_TYPE, NETWORK_TYPE
from controller.scheduling.serving.tasks.hours import Hours
from controller.scheduling.serving.tasks.past import Measured, PastRuns, measured_of, past_runs_of, run_time_s, spent_of
from controller.scheduling.serving.tasks.trusts import Trusts
from controller.scheduling.serving.tasks.view import TasksView, has_ended
from controller.scheduling.tasks.estimating import Evidence, KnownType, options_of
from controller.scheduling.tasks.probing import Key, Known, Need, Place
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from controller.scheduling.tasks.slots import NEVER_S, Slots
from controller.scheduling.tasks.transfers import Ways, transfers
from controller.scheduling.tasks.values import CentreState, CentresView, Offer, Option, Options, PendingTask, Read
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DeviceKind

_OVERDUE: Final = 0.1
"""Fraction of its run time so far by which an overdue task is expected to go on."""


class Knowledge:
    """Builds the inputs of decisions and reuses unchanged ones."""

    def __init__(self, view: TasksView, settings: TaskSettings, hours: Hours) -> None:
        self._view, self._settings = view, settings.probing
        self._trusts = Trusts(view, settings.trust)
        self.hours = hours
        self._ranked = {profile.name for profile in settings.profiles if profile.benchmark}
        self._measured: tuple[int, Measured] | None = None
        self._past_runs: tuple[int, PastRuns] | None = None
        self._seen: tuple[int, set[str]] | None = None
        self._offers: tuple[int, tuple[Offer, ...]] | None = None
        self._options: dict[tuple[str, str], tuple[object, Options, tuple[Offer, ...]]] = {}
        self.problems: dict[str, tuple[object, str]] = {}
        """Reason why a type has no probe, with the library and operators for which that was found."""
        self._underway_tasks: tuple[int, dict[str, list[Task]]] | None = None
        self._made: dict[tuple[str, str, tuple[str, str]], tuple[object, tuple[Option, ...]]] = {}

    def measured(self) -> Measured:
        """Return the measurements, by place."""
        version = self._view.versions[ProbeResult]
        if self._measured is None or self._measured[0] != version:
            self._measured = (version, measured_of(self._view))
        return self._measured[1]

    def past_runs(self) -> PastRuns:
        """Return past runs, by place; the same value until another task has ended."""
        version = self._view.ended_version
        if self._past_runs is None or self._past_runs[0] != version:
            self._past_runs = (version, past_runs_of(self._view))
        return self._past_runs[1]

    def _age_of(self, centre: str, wall_ns: int) -> int:
        """Return a value that changes 24 times while figures are fresh, at a different time for each centre."""
        step_ns = max(round(self._settings.fresh_s * NS_PER_S / 24), 1)
        return (wall_ns + crc32(centre.encode()) * step_ns // (1 << 32)) // step_ns

    def offers(self) -> tuple[Offer, ...]:
        """Return all unit types of all centres, in order."""
        version = self._view.versions[Centre]
        if self._offers is None or self._offers[0] != version:
            unit_offers = (
                Offer(name, unit.name, unit.count, frozenset(unit.operators), _kinds(unit))
                for name, centre in sorted(self._view.centres.items())
                for unit in centre.status.units
            )
            current = tuple(unit_offers)
            before = None if self._offers is None else self._offers[1]
            self._offers = (version, before if before == current else current)
        return self._offers[1]

    def centres_view(
        self, now_ns: int, wall_ns: int, costs: CostMap | None, tasks: Sequence[PendingTask]
    ) -> CentresView:
        """Return all current offers of the centres; times of the view are the wall clock's."""
        measured, held, offers = self.measured(), self._view.held_by(), self.offers()
        states = {
            name: CentreState(
                name,
                self._view.problem_of(centre, now_ns),
                centre.status.hosts,
                name in measured.probed,
                tuple((each.operator, each.factor) for each in centre.status.corrections),
                tuple((each.task_type, each.factor) for each in centre.status.type_corrections),
            )
            for name, centre in self._view.centres.items()
        }
        slots = tuple(
            _slots(self._view.centres[offer.centre], offer, held.get(offer.centre, ()), wall_ns) for offer in offers
        )
        return CentresView(
            wall_ns,
            offers,
            states,
            slots,
            transfers(costs, states.values(), tasks),
            self.hours.windows(tasks, measured.centres, wall_ns),
            costs,
            Ways(costs, states),
        )

    def known_type(
        self, task_type: str, counts: Iterable[int] = (), expected_s: tuple[tuple[DeviceKind, float], ...] = ()
    ) -> KnownType:
        """Return a type with its probes, the unit counts of interest for it, and the run times that a user expects."""
        probes = self._view.probes_of(task_type)
        stated = tuple(sorted(set(counts) - {0}))
        return KnownType(task_type, probes, self._settings.counts, stated, expected_s=expected_s)

    def options(self, profile: TaskProfile, known_type: KnownType, wall_ns: int) -> Options:
        """Return the options of all offers for a type, or by its benchmark for a profile that has one."""
        offers, measured, past_runs = self.offers(), self.measured(), self.past_runs()
        ranked_type = self._by_benchmark(profile, known_type) if profile.benchmark else known_type
        name = profile.name if profile.benchmark else ""
        key = (id(offers), id(measured), id(past_runs), ranked_type, self._age_of("", wall_ns))
        cached = self._options.get((name, known_type.name))
        if cached is not None and cached[0] == key:
            return cached[1]
        items = tuple(option for offer in offers for option in self._of_offer(name, ranked_type, offer, wall_ns))
        if cached is not None and cached[1].items == items and cached[2] is offers:
            options = cached[1]  # a task of another type has ended
        else:
            options = Options.of(items, {offer.key: position for position, offer in enumerate(offers)})
        self._options[name, known_type.name] = (key, options, offers)
        return options

    def _of_offer(self, profile: str, known_type: KnownType, offer: Offer, wall_ns: int) -> tuple[Option, ...]:
        measured, past_runs = self.measured(), self.past_runs()
        results = measured.results.get(offer.key, {})
        runs_s = {} if profile else past_runs.runs_s.get(offer.key, {}).get(known_type.name, {})
        mine = {probe.name: results[probe.name] for probe in known_type.probes if probe.name in results}
        revisions = tuple((name, len(values), values[-1].metadata.revision) for name, values in mine.items())
        times = tuple((units, len(values), values[-1]) for units, values in runs_s.items())
        trust = self._trusts.of(
            offer.centre, measured.of_centre(offer.centre), past_runs.ended.get(offer.centre, ()), wall_ns
        )
        key = (known_type, offer, revisions, times, trust, self._age_of(offer.centre, wall_ns))
        cached = self._made.get((profile, known_type.name, offer.key))
        if cached is not None and cached[0] == key:
            return cached[1]
        options = options_of(known_type, offer, Evidence(mine, runs_s, trust), wall_ns, self._settings.fresh_s)
        self._made[profile, known_type.name, offer.key] = (key, options)
        return options

    def _by_benchmark(self, profile: TaskProfile, known_type: KnownType) -> KnownType:
        candidates = [self._view.probe(name) for name in profile.benchmark]
        probes = tuple(probe for probe in candidates if probe is not None)
        lacking = [name for name, probe in zip(profile.benchmark, candidates, strict=True) if probe is None]
        if lacking:
            return KnownType(
                known_type.name,
                (),
                known_type.counts,
                known_type.stated,
                f"there is no probe task {lacking[0]} to rank centres by",
            )
        return KnownType(known_type.name, probes, known_type.counts, known_type.stated)

    def places(self) -> tuple[Place, ...]:
        """Return all offers with their free units."""
        free_places = []
        for offer in self.offers():
            centre = self._view.centres[offer.centre]
            free = next(centre.free_of(unit) for unit in centre.status.units if unit.name == offer.unit)
            free_places.append(Place(offer, free, centre.status.asks_for_probe))
        return tuple(free_places)

    def probes_known(self) -> Mapping[Key, Known]:
        """Return the state of each probe at each place, from its results and its tasks."""
        times: defaultdict[Key, dict[int, int]] = defaultdict(dict)
        for (centre, unit), by_probe in self.measured().results.items():
            for probe, results in by_probe.items():
                for result in results:
                    for run in result.status.runs:
                        times[probe, centre, unit][run.units] = result.metadata.created_ns
        tasks: defaultdict[Key, list[Task]] = defaultdict(list)
        for task in self._view.tasks.values():
            centre_name = task.spec.centre or task.status.centre
            if task.spec.is_probe and not task.spec.asks and centre_name:
                tasks[task.spec.program.entry, centre_name, task.status.unit or task.spec.unit or ""].append(task)
        return {key: _known(times.get(key, {}), tasks.get(key, [])) for key in {*times, *tasks}}

    def needs(self, waiting: Mapping[str, Sequence[PendingTask]]) -> tuple[Need, ...]:
        """Return the probe needs of each type that has probes; `waiting` are tasks by type."""
        measured = self.measured()
        used: dict[str, int] = {}
        finished: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        work: defaultdict[str, float] = defaultdict(float)
        for task in self._view.tasks.values():
            if task.spec.is_probe:
                continue
            name, status = self._view.type_of(task), task.status
            used[name] = max(used.get(name, 0), status.finished_ns or task.metadata.created_ns)
            if (seconds := run_time_s(task)) is not None:
                work[name] += seconds * (status.units or 0)
                finished[name].add((status.centre or "", status.unit or ""))
        spent = spent_of(measured)
        types = {probe.task_type for name in self._view.probes if (probe := self._view.probe(name)) is not None}
        type_needs = []
        for name in sorted(types - {""}):
            tasks, probes = (
                waiting.get(name, ()),
                {probe.name: frozenset(probe.kernels) for probe in self._view.probes_of(name)},
            )
            type_needs.append(
                Need(
                    name,
                    probes,
                    tuple(sorted({units for task in tasks for units in task.units})),
                    len(tasks),
                    min((task.since_ns for task in tasks), default=0),
                    used.get(name, 0),
                    frozenset(finished[name]),
                    work[name] + self._work_of(name, len(tasks)),
                    sum(spent.get(probe, 0.0) for probe in probes),
                    checks_network=name == NETWORK_TYPE,
                )
            )
        return tuple(type_needs)

    def kernels_of(self, task_type: str) -> frozenset[str]:
        """Return the kernels of a type's probes."""
        return frozenset(kernel for probe in self._view.probes_of(task_type) for kernel in probe.kernels)

    def problem_of(self, task_type: str) -> str:
        """Return why a type has no probe, '' if it has."""
        # Somebody may have written one since it could not be built.
        is_unbuilt = task_type in self.problems and not self._view.probes_of(task_type)
        return self.problems[task_type][1] if is_unbuilt else ""

    def is_being_probed(self, task_type: str, view: CentresView) -> bool:
        """Return whether a new type is being probed for the first time.

        That lasts until its probes have ended, at `first` centres or at all that can run them now; until patience runs
        out; or until a task of the type is dispatched to a place that its user stated.
        """
        in_progress, probes = self._in_progress(task_type), {probe.name for probe in self._view.probes_of(task_type)}
        times = [task.metadata.created_ns for task in in_progress]
        complete: set[tuple[str, str]] = set()
        for location, by_probe in self.measured().results.items():
            mine = [by_probe[probe] for probe in probes if probe in by_probe]
            times += [tasks[0].metadata.created_ns for tasks in mine]
            if probes and len(mine) == len(probes):
                complete.add(location)
        if not times or view.now_ns > min(times) + self._settings.patience_s * NS_PER_S:
            return False
        if task_type in self._seen_types():
            return False
        return bool(in_progress) or (
            len(complete) < self._settings.first and self._may_complete(task_type, complete, view)
        )

    def _may_complete(self, task_type: str, complete: set[tuple[str, str]], view: CentresView) -> bool:
        """Return whether an unmeasured place can be measured soon: its units are free, or a probe holds them."""
        kernels, states = self.kernels_of(task_type), self.probes_known()
        probes = [probe.name for probe in self._view.probes_of(task_type)]
        probing = {centre for (_, centre, _), state in states.items() if state.is_underway}
        for place in self.places():
            offer = place.offer
            failures = max(
                (states[probe, *offer.key].failures for probe in probes if (probe, *offer.key) in states), default=0
            )
            if (
                offer.key not in complete
                and not view.centres[offer.centre].problem
                and kernels <= offer.operators
                and (place.free > 0 or offer.centre in probing)
                and not failures
                and offer.count
            ):
                return True
        return False

    def _seen_types(self) -> set[str]:
        """Return the types with a dispatched task; dispatches by a fixed benchmark do not count."""
        version = self._view.versions[Task]
        if self._seen is None or self._seen[0] != version:
            tasks = (task for task in self._view.tasks.values() if task.status.epoch and not task.spec.is_probe)
            types = (
                BENCHMARK_TYPE if task.spec.profile in self._ranked else self._view.type_of(task) for task in tasks
            )
            self._seen = (version, set(types))
        return self._seen[1]

    def probing_line(self, task_type: str) -> str:
        """Return which probes of a type are in progress, '' if none."""
        places = sorted({task.spec.centre or "" for task in self._in_progress(task_type)})
        return f"type {task_type} is being probed at {', '.join(places)}" if places else ""

    def _in_progress(self, task_type: str) -> list[Task]:
        return self._probing().get(task_type, [])

    def _probing(self) -> dict[str, list[Task]]:
        version = self._view.versions[Task]
        if self._underway_tasks is None or self._underway_tasks[0] != version:
            by_type: defaultdict[str, list[Task]] = defaultdict(list)
            for task in self._view.tasks.values():
                if task.spec.is_probe and not task.spec.asks and task.spec.task_type and not has_ended(task):
                    by_type[task.spec.task_type].append(task)
            self._underway_tasks = (version, dict(by_type))
        return self._underway_tasks[1]

    def _work_of(self, task_type: str, number: int) -> float:
        """Return the unit-seconds of so many tasks of a type, by the smallest known value of any place."""
        options = self._options.get(("", task_type))
        if options is None or not number:
            return 0.0
        work = [option.estimate.times[1] * option.units for option in options[1].items if option.estimate.is_known]
        return number * min(work, default=0.0)


def pending_of(task: Task, task_type: str, kernels: frozenset[str]) -> PendingTask:
    """Return a task in the form used by decisions."""
    spec = task.spec
    return PendingTask(
        task.metadata.name,
        task_type,
        spec.priority,
        task.metadata.created_ns,
        spec.centre,
        spec.unit,
        spec.units,
        spec.choice,
        kernels,
        tuple(Read(read.host, read.nbytes) for read in spec.reads),
        spec.not_before_ns,
        spec.deadline_ns,
        spec.operators,
        centres=spec.centres,
        expected_s=tuple(sorted(spec.expected.items())),
    )


def _kinds(unit: UnitType) -> frozenset[DeviceKind]:
    return frozenset(kind for need in unit.unit.devices for kind in need.kinds)


def _slots(centre: Centre, offer: Offer, held: Sequence[Task], wall_ns: int) -> Slots:
    """Return when an offer's units are free, by its tasks' expected run times; unknown for units held by others.

    Units of tasks whose type the centre has yet to pick count for each type.
    """
    until = [
        (share.units, left_s(task, wall_ns))
        for share in centre.shares
        if share.unit in {None, offer.unit}
        for task in held
        if task.metadata.name == share.task
    ]
    unknown = [share for share in centre.shares if share.task not in {task.metadata.name for task in held}]
    until += [(share.units, NEVER_S) for share in unknown if share.unit in {None, offer.unit}]
    unit = next(candidate for candidate in centre.status.units if candidate.name == offer.unit)
    others = offer.count - unit.for_tasks
    return Slots(offer.count, [*until, (others, NEVER_S)] if others else until)


def left_s(task: Task, wall_ns: int) -> float:
    """Return the seconds until a dispatched task is expected to end; NEVER_S if that is unknown."""
    status = task.status
    if status.expected_s is None:
        return NEVER_S if task.spec.limit_s is None else task.spec.limit_s
    ran_s = max(wall_ns - (status.started_ns or status.dispatched_ns or wall_ns), 0) / NS_PER_S
    return max(status.expected_s - ran_s, _OVERDUE * ran_s, 1e-3)


def _known(times: Mapping[int, int], tasks: Sequence[Task]) -> Known:
    """Return the state of a probe at a place: failures are counted from the newest task back to a good one."""
    ordered = sorted(tasks, key=lambda task: task.metadata.created_ns)
    failures, problem = 0, ""
    for task in reversed(ordered):
        if not has_ended(task):
            continue
        if task.status.phase is TaskPhase.SUCCEEDED:
            break
        failures += 1
        problem = problem or "; ".join(task.status.reasons)
    return Known(
        dict(times),
        failures,
        max((task.metadata.created_ns for task in ordered), default=0),
        max((_number(task) for task in ordered), default=0),
        any(not has_ended(task) for task in ordered),
        problem,
    )


def _number(task: Task) -> int:
    text = task.metadata.labels.get("millrace.probe-number", "")
    return int(text) if text.isascii() and text.isdigit() else 0
