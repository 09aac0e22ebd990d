"""Decisions about pods: properties over random events on a node, and single cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.apiserver.resources.pod import Phase, Restart
from controller.workloads.nodes.deciding.planning import own_containers, plan
from controller.workloads.nodes.deciding.records import NOTHING, Memory, after_failure, after_start, observe
from controller.workloads.nodes.deciding.values import Actual, Lease, Release, Remove, Run, Step, Stop, Terms, Wanted
from controller.workloads.nodes.runtimes.base import ContainerPhase, ContainerState

S = 1_000_000_000
TERMS = Terms()
FOR_EVER = Lease(10**18, 40 * S)


def container(
    pod: str = "a",
    name: str = "main",
    *,
    number: str = "1",
    uid: str = "u",
    epoch: int = 1,
    phase: ContainerPhase = ContainerPhase.RUNNING,
    code: int | None = None,
    attempt: int = 0,
) -> Actual:
    labels = {
        "millrace.pod": pod,
        "millrace.uid": uid,
        "millrace.epoch": str(epoch),
        "millrace.container": name,
        "millrace.attempt": str(attempt),
    }
    return Actual.of(ContainerState(id=number, name=f"n-{pod}-{name}", labels=labels, phase=phase, exit_code=code))


def pod(name: str = "a", *, restart: Restart = Restart.ALWAYS, epoch: int = 1, **more: object) -> Wanted:
    made = Wanted(name, "u", epoch, ("main",), restart, 10 * S)
    return replace(made, **more)  # type: ignore[arg-type]


def actions_for(wanted: Wanted | None, actual: Sequence[Actual], *, lease: Lease = FOR_EVER, now_ns: int = 0) -> object:
    planned = plan({} if wanted is None else {wanted.name: wanted}, actual, lease, now_ns, terms=TERMS)
    assert len(planned.steps) <= 1
    return planned.steps[0].actions if planned.steps else ()


def exited(code: int) -> Actual:
    return container(phase=ContainerPhase.EXITED, code=code)


def test_a_bound_pod_is_started_and_one_that_runs_is_left_alone() -> None:
    assert actions_for(pod(), []) == (Run("main"),)
    assert actions_for(pod(), [container()]) == ()


def test_nothing_is_touched_before_the_wanted_state_is_known() -> None:
    assert plan(None, [container()], FOR_EVER, 0, terms=TERMS).steps == ()


def test_unwanted_container_is_stopped_and_then_removed() -> None:
    assert actions_for(None, [container()]) == (Stop("1", TERMS.stranger_grace_ns),)
    assert actions_for(None, [exited(0)]) == (Remove("1"),)


def test_an_older_epoch_ends_before_the_new_one_begins() -> None:
    assert actions_for(pod(epoch=2), [container(epoch=1)]) == (Stop("1", TERMS.stranger_grace_ns),)
    assert actions_for(pod(epoch=2), [replace(exited(143), epoch=1)]) == (Remove("1"),)
    assert actions_for(pod(epoch=2), []) == (Run("main"),)


def test_leaving_pod_is_stopped_with_its_grace_and_released() -> None:
    going = pod(going=Phase.FAILED, reasons=("evicted",))
    assert actions_for(going, [container()]) == (Stop("1", 10 * S),)
    assert actions_for(going, [exited(0)]) == (Release("u", 1, Phase.FAILED, ("evicted",)),)
    assert actions_for(going, []) == (Release("u", 1, Phase.FAILED, ("evicted",)),)


def test_restart_policies() -> None:
    assert actions_for(pod(restart=Restart.ALWAYS), [exited(0)]) == (Remove("1"),)
    assert actions_for(pod(restart=Restart.ON_FAILURE), [exited(3)]) == (Remove("1"),)
    assert actions_for(pod(restart=Restart.ON_FAILURE), [exited(0)]) == (Release("u", 1, Phase.SUCCEEDED),)
    assert actions_for(pod(restart=Restart.NEVER), [exited(3)]) == (
        Release("u", 1, Phase.FAILED, ("main: ended with 3",)),
    )


def test_restarts_up_to_a_limit() -> None:
    limited = pod(restart=Restart.ON_FAILURE, restart_limit=2)
    assert actions_for(limited, [replace(exited(3), attempt=1)]) == (Remove("1"),)
    assert actions_for(limited, [replace(exited(3), attempt=2)]) == (
        Release("u", 1, Phase.FAILED, ("main: ended with 3",)),
    )
    assert actions_for(limited, [replace(exited(0), attempt=2)]) == (Release("u", 1, Phase.SUCCEEDED),)


def test_failed_start_backs_off_and_fails_a_never_restarted_pod() -> None:
    record = after_failure(NOTHING.record(("u", 1, "main")), "no such image", 0, TERMS)
    assert (record.not_before_ns, after_failure(record, "", 0, TERMS).not_before_ns) == (S, 2 * S)
    waiting = pod(records={"main": record})
    assert actions_for(waiting, []) == ()
    assert plan({"a": waiting}, [], FOR_EVER, 0, terms=TERMS).wake_ns == S
    assert actions_for(waiting, [], now_ns=S) == (Run("main"),)
    never = pod(restart=Restart.NEVER, records={"main": record})
    assert actions_for(never, []) == (Release("u", 1, Phase.FAILED, ("main: no such image",)),)


def test_waits_have_a_bound() -> None:
    assert [TERMS.wait_ns(failures) // S for failures in (1, 2, 3, 6, 7, 1000)] == [1, 2, 4, 32, 60, 60]


def test_the_lease_ends_gracefully_before_it_ends() -> None:
    lease = Lease(40 * S, 40 * S)
    assert (lease.kill_ns, lease.stop_ns(10 * S), lease.stop_ns(3600 * S)) == (39 * S, 29 * S, 29 * S)
    planned = plan({"a": pod()}, [container()], lease, 28 * S, terms=TERMS)
    assert (planned.steps, planned.wake_ns) == ((), 29 * S)
    assert actions_for(pod(), [container()], lease=lease, now_ns=29 * S) == (Stop("1", 10 * S),)
    assert actions_for(pod(), [container()], lease=lease, now_ns=36 * S) == (Stop("1", 3 * S),)
    assert actions_for(pod(), [], lease=lease, now_ns=29 * S) == ()
    assert plan(None, [container()], lease, 38 * S, terms=TERMS).steps == (Step("a", (Stop("1", S),)),)


def test_container_ended_by_the_lease_restarts_under_any_policy() -> None:
    before = observe(NOTHING, [container()], 0, TERMS, fenced=frozenset())
    memory = observe(before, [exited(137)], S, TERMS, fenced={"1"})
    wanted = pod(restart=Restart.NEVER, records=memory.of("u", 1))
    assert actions_for(wanted, [exited(137)], now_ns=S) == (Remove("1"),)
    assert actions_for(wanted, [], now_ns=S) == (Run("main", 1),)


def test_long_run_resets_the_restart_backoff() -> None:
    memory = NOTHING
    for number in range(3):
        memory = observe(memory, [container(number=str(number))], 0, TERMS, fenced=frozenset())
        memory = observe(memory, [replace(exited(1), id=str(number))], S, TERMS, fenced=frozenset())
    assert memory.record(("u", 1, "main")).failures == 3
    memory = observe(memory, [container(number="9")], 0, TERMS, fenced=frozenset())
    memory = observe(memory, [replace(exited(1), id="9")], 31 * S, TERMS, fenced=frozenset())
    record = memory.record(("u", 1, "main"))
    assert (record.failures, record.attempt, record.not_before_ns) == (1, 4, 32 * S)


@dataclass(slots=True)
class Model:
    """A node with an instant runtime, and the pods bound to it."""

    wanted: dict[str, Wanted] = field(default_factory=dict)
    containers: dict[str, Actual] = field(default_factory=dict)
    memory: Memory = NOTHING
    now_ns: int = 0
    number: int = 0
    broken: set[str] = field(default_factory=set)
    released: list[tuple[str, int, Phase]] = field(default_factory=list)

    def bound(self) -> dict[str, Wanted]:
        return {
            name: replace(spec, records=self.memory.of(spec.uid, spec.epoch))
            for name, spec in self.wanted.items()
            if (name, spec.epoch) not in {(name, epoch) for name, epoch, _ in self.released}
        }

    def step(self) -> bool:
        """Observe, decide and act; return whether there was anything to do."""
        actual = list(self.containers.values())
        self.memory = observe(self.memory, actual, self.now_ns, TERMS, fenced=frozenset())
        planned = plan(self.bound(), actual, FOR_EVER, self.now_ns, terms=TERMS)
        for step in planned.steps:
            for action in step.actions:
                self._do(step.pod, action)
        self.check()
        if not planned.steps and planned.wake_ns is not None and planned.wake_ns < FOR_EVER.stop_ns(10 * S):
            self.now_ns = max(self.now_ns, planned.wake_ns)
        return bool(planned.steps)

    def _do(self, name: str, action: object) -> None:
        match action:
            case Run(container=part, attempt=attempt):
                wanted = self.wanted[name]
                key = (wanted.uid, wanted.epoch, part)
                record = self.memory.record(key)
                if name in self.broken:
                    self.memory = self.memory.with_record(key, after_failure(record, "broken", self.now_ns, TERMS))
                    return
                self.number += 1
                made = container(
                    name, part, number=str(self.number), uid=wanted.uid, epoch=wanted.epoch, attempt=attempt
                )
                self.memory = self.memory.with_record(key, after_start(record, 1))
                self.containers[made.id] = made
            case Stop(id=key):
                assert self.containers[key].runs
                self.end(key, 143)
            case Remove(id=key):
                assert not self.containers[key].runs
                del self.containers[key]
            case Release(epoch=epoch, phase=phase):
                self.released.append((name, epoch, phase))

    def end(self, key: str, code: int) -> None:
        self.containers[key] = replace(self.containers[key], phase=ContainerPhase.EXITED, exit_code=code)

    def end_all(self, pod_name: str, code: int) -> None:
        for key, container in list(self.containers.items()):
            if container.pod == pod_name and container.runs:
                self.end(key, code)

    def check(self) -> None:
        running = [(container.pod, container.container) for container in self.containers.values() if container.runs]
        assert len(set(running)) == len(running), "two containers of one pod and name run"
        for name, epoch, _ in self.released:
            assert not any(
                container.runs and (container.pod, container.epoch) == (name, epoch)
                for container in self.containers.values()
            )


NAMES = st.sampled_from(["a", "b", "c"])
HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), NAMES, st.sampled_from(Restart)),
        st.tuples(st.just("unbind"), NAMES, st.none()),
        st.tuples(st.just("delete"), NAMES, st.none()),
        st.tuples(st.just("break"), NAMES, st.none()),
        st.tuples(st.just("mend"), NAMES, st.none()),
        st.tuples(st.just("end"), NAMES, st.sampled_from([0, 1, 137])),
        st.tuples(st.just("restart"), st.just(""), st.none()),
        st.tuples(st.just("stranger"), NAMES, st.booleans()),
        st.tuples(st.just("step"), st.just(""), st.integers(0, 5)),
    ),
    max_size=40,
)


def happen(model: Model, what: str, name: str, detail: object) -> None:
    match what:
        case "bind":
            before = model.wanted.get(name)
            epoch = 1 if before is None else before.epoch + 1
            assert isinstance(detail, Restart)
            model.wanted[name] = pod(name, restart=detail, epoch=epoch, uid=f"uid-{name}", containers=("x", "y"))
        case "unbind" if name in model.wanted:
            model.released.append((name, model.wanted[name].epoch, Phase.PENDING))
            model.end_all(name, 137)  # a foreign release comes only after the guard
        case "delete" if name in model.wanted:
            model.wanted[name] = replace(model.wanted[name], going=Phase.PENDING)
        case "break":
            model.broken.add(name)
        case "mend":
            model.broken.discard(name)
        case "end":
            assert isinstance(detail, int)
            model.end_all(name, detail)
        case "restart":
            model.memory = NOTHING
        case "stranger":
            model.number += 1
            phase = ContainerPhase.CREATED if detail else ContainerPhase.RUNNING
            stranger = container(name, "z", number=str(model.number), uid="other", epoch=7, phase=phase)
            model.containers[stranger.id] = stranger
        case "step":
            assert isinstance(detail, int)
            for _ in range(detail):
                model.step()


def settle(model: Model) -> None:
    """Let time pass without new failures until there is nothing to do."""
    model.broken.clear()
    idle = 0
    for _ in range(200):
        before = model.now_ns
        idle = 0 if model.step() or model.now_ns != before else idle + 1
        if idle > 1:
            return
    raise AssertionError("does not settle")


@given(HAPPENINGS)
@settings(max_examples=300, deadline=None)
def test_random_events_converge_to_the_wanted_pods(happenings: list[tuple[str, str, object]]) -> None:
    model = Model()
    for happening in happenings:
        happen(model, *happening)
    settle(model)
    bound = model.bound()
    for name, wanted in bound.items():
        assert wanted.going is None
        own = own_containers(wanted, [container for container in model.containers.values() if container.pod == name])
        if wanted.restart is Restart.ALWAYS:
            assert {part for part, container in own.items() if container.runs} == {"x", "y"}
    assert all(
        container.pod in bound and container.is_of(bound[container.pod]) for container in model.containers.values()
    )


@given(HAPPENINGS)
@settings(max_examples=200, deadline=None)
def test_a_manager_that_was_restarted_touches_nothing_that_runs(happenings: list[tuple[str, str, object]]) -> None:
    model = Model()
    for happening in happenings:
        happen(model, *happening)
    settle(model)
    before = dict(model.containers)
    model.memory = NOTHING
    planned = plan(model.bound(), list(model.containers.values()), FOR_EVER, model.now_ns, terms=TERMS)
    touched = {action.id for step in planned.steps for action in step.actions if isinstance(action, Stop | Remove)}
    assert not touched & {key for key, container in before.items() if container.runs}
    for _ in range(5):
        model.step()
    running = {key for key, container in before.items() if container.runs}
    assert running <= {key for key, container in model.containers.items() if container.runs}


@given(HAPPENINGS, st.sets(NAMES))
@settings(max_examples=100, deadline=None)
def test_only_busy_pods_are_left_out_of_the_plan(happenings: list[tuple[str, str, object]], busy: set[str]) -> None:
    model = Model()
    for happening in happenings:
        happen(model, *happening)
    actual: Sequence[Actual] = list(model.containers.values())
    wanted: Mapping[str, Wanted] = model.bound()
    everything = plan(wanted, actual, FOR_EVER, model.now_ns, terms=TERMS).steps
    some = plan(wanted, actual, FOR_EVER, model.now_ns, terms=TERMS, busy=busy).steps
    assert some == tuple(step for step in everything if step.pod not in busy)
