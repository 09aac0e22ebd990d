"""Runs a test file against a program on a switch in virtual time and reports differences from the expected output."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError, EntryError
from dataplane.program.model import Program
from dataplane.stf.compare import Difference, Ledger
from dataplane.stf.controls import Controls
from dataplane.stf.statements import Expect, NoPacket, Packet, Statement, Wait
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import PipelineFactory, PortSettings, Switch
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.pipeline import TracedPipeline
from dataplane.switch.tracing.steps import PacketTrace

PACKET_INTERVAL_NS = 100_000
COMMAND_INTERVAL_NS = 1_000_000_000
"""Virtual time that passes before a command, as p4c's runner waits after one."""
LAST_NS = 10_000_000_000
QUEUE_FRAMES = 4_096
PORTS = 512


OnTrace = Callable[[int, PacketTrace], None]
"""(line of the test, trace of its packet)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a test: passed if `differences` is empty; `notes` are the readings that it requested."""

    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    drops: Mapping[str, int]


def run_stf(
    program: Program,
    statements: Sequence[Statement],
    file: str,
    pipeline_factory: PipelineFactory | None = None,
    *,
    on_trace: OnTrace | None = None,
) -> Outcome:
    """Run a test; frames on ports that it does not name are ignored, as in p4c's runner.

    With `on_trace` the interpreter runs it, whatever `pipeline_factory` says, and explains each packet.

    Raises ConfigError naming `file` and line for a table, action or value that the program does not have, and
    ProgramError if the pipeline cannot execute the program.
    """
    return _Run(program, statements, file, pipeline_factory, on_trace).outcome()


def named_ports(statements: Sequence[Statement], file: str) -> frozenset[int]:
    """Return the ports of all packets and expectations; raise ConfigError for an impossible one."""
    named = set()
    for statement in statements:
        if isinstance(statement.command, Packet | Expect):
            if statement.command.port >= PORTS:
                problem = f"port {statement.command.port}: ports go from 0 to {PORTS - 1}"
                raise ConfigError(problem, file=file, line=statement.line)
            named.add(statement.command.port)
    return frozenset(named)


class _Run:
    def __init__(
        self,
        program: Program,
        statements: Sequence[Statement],
        file: str,
        factory: PipelineFactory | None,
        on_trace: OnTrace | None,
    ) -> None:
        self._statements, self._file = statements, file
        self._ledger = Ledger(named_ports(statements, file))
        # Every port exists, as bmv2 runs egress for all of them; the switch's own CPU port is one that the test does
        # not name.
        cpu_port = max(set(range(PORTS)) - self._ledger.named, default=PORTS - 1)
        settings = [PortSettings(port, queue_frames=QUEUE_FRAMES) for port in range(PORTS) if port != cpu_port]
        self._clock = VirtualClock()
        self._on_trace = on_trace
        self._traced: TracedPipeline | None = None
        if on_trace is not None:
            factory = self._make_traced
        self._switch = Switch(0, settings, self._clock, cpu_port=cpu_port, pipeline_factory=factory)
        self._controls = Controls(program, self._switch.commit(program))
        self._differences: list[Difference] = []
        self._notes: list[str] = []
        self._packet_line = 0
        self._packet_frames = 0

    def outcome(self) -> Outcome:
        for statement in self._statements:
            self._do(statement)
        self._pass_time(LAST_NS)
        differences = sorted([*self._differences, *self._ledger.differences()], key=lambda difference: difference.line)
        return Outcome(tuple(differences), tuple(self._notes), self._drops())

    def _do(self, statement: Statement) -> None:
        command = statement.command
        match command:
            case Packet(port, data):
                self._packet_line, self._packet_frames = statement.line, 0
                self._switch.receive(port, [data])
                self._pass_time(PACKET_INTERVAL_NS)
                self._hand_over_traces()
            case Expect():
                self._ledger.expect(statement.line, command)
            case NoPacket():
                if self._packet_frames:
                    problem = f"the packet of line {self._packet_line} sent {self._packet_frames} frames, none expected"
                    self._differences.append(Difference(statement.line, problem))
            case Wait():
                self._pass_time(COMMAND_INTERVAL_NS)
            case _:
                self._control(statement)

    def _make_traced(self, program: Program, state: ForwardingState, rng: SplitMix) -> TracedPipeline:
        self._traced = TracedPipeline(program, state, rng=rng)
        return self._traced

    def _hand_over_traces(self) -> None:
        if self._traced is not None and self._on_trace is not None:
            for trace in self._traced.take():
                self._on_trace(self._packet_line, trace)

    def _control(self, statement: Statement) -> None:
        self._pass_time(COMMAND_INTERVAL_NS)
        try:
            answer = self._controls.carry_out(statement.command)
        except EntryError as error:
            raise ConfigError(str(error), file=self._file, line=statement.line) from error
        if answer is not None:
            self._notes.append(answer.text)
            if not answer.holds:
                self._differences.append(Difference(statement.line, answer.text))

    def _pass_time(self, duration_ns: int) -> None:
        self._clock.advance_to(self._clock.now_ns() + duration_ns)
        for departure in self._switch.advance(self._clock.now_ns()):
            if self._ledger.arrive(self._packet_line, departure.port, departure.data):
                self._packet_frames += 1

    def _drops(self) -> dict[str, int]:
        counters = self._switch.counters()
        drops = {name: number for name, number in counters.drops.items() if number}
        for port, counts in counters.ports.items():
            drops.update({f"port {port} {name}": number for name, number in counts.drops.items() if number})
        return drops
