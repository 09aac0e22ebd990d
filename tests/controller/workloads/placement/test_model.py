"""Silent and returning nodes, lost writes and late watches in any order: no pod runs twice, and all run in the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import repeat
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from controller.apiserver.registry.placements import Release
from controller.apiserver.resources import Node, Pod, PodGroup
from controller.apiserver.resources.pod import Phase, Restart
from controller.apiserver.resources.pod_group import GroupPhase
from controller.common.errors import ApiError
from controller.workloads.placement.settings import PlacementSettings, RetrySettings, SilenceSettings
from controller.workloads.placement.template import is_of
from tests.controller.workloads.placement.cluster_model import Controller, Machine, S, Server, new_node
from tests.controller.workloads.placement.serving_placement import group_of

NODES = ("h1", "h2", "h3", "h4")
GROUPS = ("g", "k")
LEASE_S = 40.0
SETTINGS = PlacementSettings(
    silence=SilenceSettings(margin_s=5.0, nodes_per_s=1.0, burst=2),
    retries=RetrySettings(most=1000, first_wait_s=1.0, longest_wait_s=2.0),
)


class ClusterMachine(RuleBasedStateMachine):
    """See cluster_model."""

    @initialize(rates=st.tuples(*(st.floats(0.95, 1.05) for _ in NODES)))
    def begin(self, rates: tuple[float, ...]) -> None:
        self.server = Server()
        for name in NODES:
            self.server.create(Node, new_node(name, LEASE_S))
        self.machines = {name: Machine(name, rate, LEASE_S) for name, rate in zip(NODES, rates, strict=True)}
        for machine in self.machines.values():
            machine.report(self.server)
        self.server.create(PodGroup, group_of("g", 3))
        self.controllers = [Controller(self.server, SETTINGS), Controller(self.server, SETTINGS)]
        self.controllers[0].round(repeat("done"))
        self.the_scheduler_binds(0)
        for machine in self.machines.values():
            machine.look(self.server)

    @rule(seconds=st.sampled_from([1, 5, 20, 45, 60]), rng=st.randoms(use_true_random=False), faults=st.booleans())
    def time_passes(self, seconds: int, rng: Random, faults: bool) -> None:
        """Let everyone act; with faults, watches are late, and writes and answers are lost."""
        deaf = [faults and rng.random() < 0.3 for _ in self.controllers]
        for _ in range(seconds):
            self.server.now_ns += S
            for number, machine in enumerate(self.machines.values()):
                machine.tick(self.server.now_ns)
                if (self.server.now_ns // S + number) % 10 == 0:
                    machine.report(self.server, answered=not (faults and rng.random() < 0.3))
                if not faults or rng.random() < 0.5:
                    machine.look(self.server)
            for controller, hears_nothing in zip(self.controllers, deaf, strict=True):
                controller.hear(0 if hears_nothing else rng.randrange(6) if faults else 100_000)
                if not faults or rng.random() < 0.5:
                    controller.round(_fates(rng, faults))
            if rng.random() < 0.5:
                self.the_scheduler_binds(rng.randrange(4))
            self.no_pod_runs_twice()

    @rule(name=st.sampled_from(NODES), state=st.sampled_from(["dead", "cut off", "well"]))
    def a_node_changes(self, name: str, state: str) -> None:
        machine = self.machines[name]
        machine.is_dead, machine.is_cut_off = state == "dead", state == "cut off"
        machine.tick(self.server.now_ns)

    @rule(which=st.integers(0, 1))
    def a_controller_restarts(self, which: int) -> None:
        self.controllers[which].restart()

    def the_scheduler_binds(self, start: int) -> None:
        """Bind pending pods, whole groups at once, to nodes that appear ready."""
        ready = [name for name in NODES if self.server.known[Node][name].status.ready]
        ready = [name for name in ready if not self.server.known[Node][name].spec.unschedulable]
        for group in self.server.known[PodGroup].values():
            pods = [pod for pod in self.server.known[Pod].values() if pod.spec.group == group.metadata.name]
            waiting = [
                pod.metadata.name
                for pod in pods
                if pod.status.phase is Phase.PENDING and pod.status.node is None and pod.metadata.deleting_ns is None
            ]
            if ready and 0 < group.needed <= len(waiting):
                self.server.bind({pod: ready[(start + at) % len(ready)] for at, pod in enumerate(waiting)})

    @rule(name=st.sampled_from(GROUPS), size=st.integers(1, 4), restart=st.sampled_from(list(Restart)))
    def a_user_writes(self, name: str, size: int, restart: Restart) -> None:
        group = self.server.known[PodGroup].get(name)
        wanted = group_of(name, size, restart=restart)
        if group is None:
            self.server.create(PodGroup, wanted)
        else:
            self.server.change(PodGroup, replace(group, spec=wanted.spec), "spec")

    @rule(name=st.sampled_from(GROUPS))
    def a_user_deletes_a_group(self, name: str) -> None:
        if name in self.server.known[PodGroup]:
            self.server.delete(PodGroup, name)

    @rule(data=st.data())
    def a_user_deletes_a_pod(self, data: st.DataObject) -> None:
        if self.server.known[Pod]:
            self.server.delete(Pod, data.draw(st.sampled_from(sorted(self.server.known[Pod]))))

    @rule(data=st.data(), failed=st.booleans())
    def a_pod_ends(self, data: st.DataObject, failed: bool) -> None:
        live = [machine for machine in self.machines.values() if not machine.is_cut_off and machine.running]
        if not live:
            return
        machine = data.draw(st.sampled_from(live))
        pod = data.draw(st.sampled_from(sorted(machine.running)))
        phase = Phase.FAILED if failed else Phase.SUCCEEDED
        epoch = machine.running.pop(pod)
        with suppress(ApiError):  # it is elsewhere, or gone
            self.server.release(Release(pod=pod, epoch=epoch, phase=phase))

    @invariant()
    def no_pod_runs_twice(self) -> None:
        running: dict[str, str] = {}
        for machine in self.machines.values() if hasattr(self, "machines") else ():
            for pod in machine.running if machine.is_leased(self.server.now_ns) else ():
                assert pod not in running, f"{pod} runs on {running[pod]} and {machine.name}"
                running[pod] = machine.name

    def teardown(self) -> None:
        """One node stays dead, the others live: after some rounds exactly the desired pods run."""
        if not hasattr(self, "machines"):
            return
        for machine in self.machines.values():
            machine.is_dead, machine.is_cut_off = machine.name == "h1", False
        for _ in range(40):
            self.time_passes(10, Random(1), faults=False)
            if not self.problem():
                return
        raise AssertionError(f"does not settle: {self.problem()}")

    def problem(self) -> str:
        """Return the deviations from the desired state."""
        pods: dict[str, Any] = self.server.known[Pod]
        for name, group in self.server.known[PodGroup].items():
            mine = [pod for pod in pods.values() if is_of(pod, group)]
            if group.status.phase in {GroupPhase.FAILED, GroupPhase.FINISHED}:
                if any(pod.status.node is not None for pod in mine):
                    return f"group {name} has ended, and pods of it have not"
                continue
            if len(mine) != group.spec.size:
                return f"group {name} has {len(mine)} pods, not {group.spec.size}"
            for pod in mine:
                failed = pod.status.phase is Phase.FAILED and pod.spec.restart is Restart.NEVER
                ended = failed or pod.status.phase is Phase.SUCCEEDED
                if not ended and pod.metadata.name not in self.machines[pod.status.node or "h1"].running:
                    return f"{pod.metadata.name} does not run"
        groups = self.server.known[PodGroup]
        strays = [
            name for name, pod in pods.items() if pod.spec.group not in groups or not is_of(pod, groups[pod.spec.group])
        ]
        shares = [share.pod for node in self.server.known[Node].values() for share in node.shares]
        held = sorted(name for name, pod in pods.items() if pod.status.node is not None)
        if strays or sorted(shares) != held:
            return f"of no group: {strays}; shares of {shares}, held by {held}"
        return ""


def _fates(rng: Random, faults: bool) -> Iterator[str]:
    """Yield the fate of each write."""
    while True:
        yield rng.choice(("done", "done", "lost", "unanswered")) if faults else "done"


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
