"""Drives a fabric's switches in virtual time, as a `Coordinator` directs; it knows no owner by name.

Sessions are in one process, and writes take effect at times of the fabric's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec

from controller.common.errors import SessionError
from controller.network.coordinator import Coordinator, Exchange
from controller.network.owners.base import ListeningOwner, StagedOwner
from controller.network.owners.steps import Step
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import Learned
from controller.network.tables.entities import Update, Verb
from dataplane.clock import Clock
from dataplane.config import Strict

CallAt = Callable[[int, Callable[[], None]], object]
"""Runs a function when the fabric's clock reaches a time in ns."""

OnStep = Callable[[Step], None]
"""Called for each step that has taken effect."""


class WriteDelays(Strict, frozen=True):
    """Delays of the control channel."""

    write_delay_ns: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """From sending a step to its effect in the tables and the next step's sending."""
    drain_ns: Annotated[int, msgspec.Meta(ge=0)] = 0
    """From the last new entry to the first removal, for packets that are still on the old path."""


class VirtualDriver:
    """Keeps switches reconciled; logs entries that an owner drops, and raises other failures where they happen."""

    def __init__(
        self,
        coordinator: Coordinator,
        sessions: Mapping[str, InProcessSession],
        clock: Clock,
        call_at: CallAt,
        *,
        delays: WriteDelays,
        on_step: OnStep,
    ) -> None:
        self.coordinator = coordinator
        self._sessions, self._clock, self._call_at = sessions, clock, call_at
        self._delays, self._on_step = delays, on_step
        self._busy = False
        self._stages = {owner.name: owner.number for owner in coordinator.staged}
        self._listening: dict[str, int] = {}

    @property
    def settled(self) -> bool:
        """Return whether nothing is left to be written."""
        is_right = all(self.coordinator.is_right(switch) for switch in self.coordinator.live)
        return is_right and not self._busy and self.coordinator.next_step() is None

    def start(self) -> None:
        """Become primary everywhere and fill every switch at once."""
        for switch in self._sessions:
            self.fill(switch)

    def fill(self, switch: str) -> None:
        """Become primary at one switch and fill it at once."""
        self._sessions[switch].become_primary()
        self.reconnect(switch)

    def reconnect(self, switch: str) -> None:
        """Reconcile one switch at once, whatever it holds, after a start or a restart."""
        if self._sessions[switch].install_pipeline():
            self.coordinator.installed(switch)
        self._reconcile(switch)
        self.steps_changed()
        self.stages_changed(self._delays.write_delay_ns)

    def lose(self, switch: str) -> None:
        """Stop writing to a switch that has gone; `reconnect` takes it back."""
        self._listening.pop(switch, None)
        self.coordinator.lost(switch)
        self.steps_changed()

    def changed(self) -> None:
        """Bring all switches to the owners' desired state: each one, by steps, and by stages."""
        self.sync()
        self.steps_changed()
        self.stages_changed(self._delays.write_delay_ns)

    def sync(self, gap_ns: int = 0, *, reverse: bool = False) -> None:
        """Bring each switch to its owners' desired state: the first one write delay from now, others `gap_ns` apart."""
        for index, switch in enumerate(sorted(self._sessions, reverse=reverse)):
            self._after(self._delays.write_delay_ns + index * gap_ns, partial(self._sync, switch))

    def steps_changed(self) -> None:
        """Send the next step, unless one is on its way: then its effect decides what comes next."""
        step = None if self._busy else self.coordinator.next_step()
        if step is None:
            return
        start_ns = max(self._clock.now_ns(), self.coordinator.not_before_ns(step, self._delays.drain_ns))
        self._busy = True
        self._call_at(start_ns + self._delays.write_delay_ns, lambda: self._take_effect(step))

    def stages_changed(self, gap_ns: int) -> None:
        """Take switches, `gap_ns` apart, through the stages that owners have reached."""
        for owner in self.coordinator.staged:
            if owner.number != self._stages[owner.name]:
                self._stages[owner.name] = owner.number
                self._begin_stage(owner, owner.number, gap_ns)

    def _begin_stage(self, owner: StagedOwner, number: int, gap_ns: int) -> None:
        pause_ns = owner.pause_ns
        if pause_ns is not None:
            end_ns = self._clock.now_ns() + max(self._delays.drain_ns, pause_ns)
            self._call_at(end_ns, lambda: self._paused(owner, number))
            return
        for index, switch in enumerate(sorted(self._sessions)):
            if gap_ns:
                again = partial(self._look_again, switch, owner, number)
                self._call_at(self._clock.now_ns() + index * gap_ns, again)
            else:
                self._look_again(switch, owner, number)

    def _paused(self, owner: StagedOwner, number: int) -> None:
        if number == owner.number:
            owner.paused(number)
            self.stages_changed(self._delays.write_delay_ns)

    def _look_again(self, switch: str, owner: StagedOwner, number: int) -> None:
        """Reconcile a switch for an owner's stage, unless that is over or the switch has gone."""
        if number == owner.number and switch in self.coordinator.live:
            self.reconnect(switch)

    def _after(self, delay_ns: int, call: Callable[[], None]) -> None:
        if delay_ns:
            self._call_at(self._clock.now_ns() + delay_ns, call)
        else:
            call()

    def _reconcile(self, switch: str) -> None:
        """Read a switch, reconcile it, and listen to it; repeat while owners drop refused updates."""
        session = self._sessions[switch]
        while True:
            if self._carry_out(switch, self.coordinator.reconcile(switch, session.read())) is not None:
                self._listen(switch)
                if self._carry_out(switch, self.coordinator.sync(switch)) is not None:
                    return
            self.coordinator.lost(switch)

    def _sync(self, switch: str) -> None:
        if switch in self.coordinator.live and self._carry_out(switch, self.coordinator.sync(switch)) is None:
            self.coordinator.lost(switch)
            self._reconcile(switch)
        self.stages_changed(self._delays.write_delay_ns)

    def _take_effect(self, step: Step) -> None:
        self._busy = False
        for switch, updates in step.updates.items():
            if switch in self.coordinator.live:
                due = tuple(update for update in updates if self._applies(switch, update))
                if self._carry_out(switch, self.coordinator.write(switch, due)) is None:
                    self.coordinator.lost(switch)
                    self._reconcile(switch)
        self.coordinator.stepped(step, self._clock.now_ns())
        self._on_step(step)
        self.steps_changed()

    def _applies(self, switch: str, update: Update) -> bool:
        """Return whether an update still has an effect: the switch may have restarted since it was sent."""
        return (update.key in self.coordinator.held(switch)) is (update.verb is not Verb.INSERT)

    def _carry_out(self, switch: str, exchange: Exchange) -> int | None:
        """Send an exchange's batches and return its result; a switch that cannot be used is lost."""
        try:
            batch = next(exchange)
            while True:
                answer: SessionError | None = None
                try:
                    self._sessions[switch].write(batch)
                except SessionError as error:
                    answer = error
                batch = exchange.send(answer)
        except StopIteration as done:
            count: int | None = done.value
            return count
        except SessionError:
            self.coordinator.lost(switch)
            raise

    def _listen(self, switch: str) -> None:
        """Pass the counts and digests of a reconciled switch to owners, from now on."""
        run = self._listening[switch] = self._listening.get(switch, 0) + 1
        session = self._sessions[switch]
        for owner in self.coordinator.listening:
            self._count(switch, owner)
            for digest, bundling in owner.digests.items():
                session.learn(digest, bundling, partial(self._learned, switch, owner))
            self._listen_later(switch, owner, run)

    def _listen_later(self, switch: str, owner: ListeningOwner, run: int) -> None:
        self._call_at(self._clock.now_ns() + owner.interval_ns, lambda: self._interval_over(switch, owner, run))

    def _interval_over(self, switch: str, owner: ListeningOwner, run: int) -> None:
        if run == self._listening.get(switch) and switch in self.coordinator.live:
            self._count(switch, owner)
            self._after(self._delays.write_delay_ns, partial(self._sync, switch))
            self._listen_later(switch, owner, run)

    def _count(self, switch: str, owner: ListeningOwner) -> None:
        counter = owner.counter(switch)
        packets = {} if counter is None else self._sessions[switch].packets(counter)
        owner.counted(switch, packets, self._clock.now_ns())

    def _learned(self, switch: str, owner: ListeningOwner, learned: Learned) -> None:
        owner.learned(switch, learned, self._clock.now_ns())
