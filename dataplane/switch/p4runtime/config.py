"""Forwarding-pipeline configurations: checked, saved, committed, read back (specification, sections 7, 13 and 14)."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import lru_cache

from finsy.proto import p4i, p4r
from google.protobuf import empty_pb2, unknown_fields
from google.protobuf.message import DecodeError

from dataplane.errors import EntryError, EntryFault, ProgramError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.pipeline import PreparedProgram
from dataplane.switch.tables import carry_over

LOGGER = logging.getLogger("millrace.switch")

_DEVICE_DATA = 3
"""The field of the deprecated p4.tmp.P4DeviceConfig that holds the JSON."""

Action = p4r.SetForwardingPipelineConfigRequest
Answer = p4r.GetForwardingPipelineConfigRequest


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration as it was sent, and its result; `prepared` is what the switch will run."""

    config: p4r.ForwardingPipelineConfig
    context: Context
    prepared: PreparedProgram | None = None


class PipelineStore:
    """The running pipeline, and the saved one that is not yet committed.

    While one is saved, reads and writes go to its state; COMMIT puts that state to work. `running` and `current` may be
    read from any thread at any time; `load` takes long and holds nothing; the caller must ensure that only one `apply`
    runs at a time and no write concurrently.
    """

    def __init__(self, control: SwitchControl) -> None:
        self._control = control
        self._lock = threading.RLock()  # no call sees the switch's new state without its config
        self._saved: Pipeline | None = None
        self._running: Pipeline | None = None
        self._from_files: Program | None = None
        self._read_control()

    @property
    def current(self) -> Pipeline | None:
        """The pipeline that reads and writes refer to."""
        return self._saved or self.running

    @property
    def running(self) -> Pipeline | None:
        """The pipeline that packets see; one that the switch was started with counts if its P4Info is known."""
        running = self._running
        if running is None or running.context.state is not self._control.state:
            self._read_control()
        return self._running

    def contexts(self) -> list[Context]:
        """Return the contexts with entries: the running pipeline's and the saved one's."""
        return [pipeline.context for pipeline in (self.running, self._saved) if pipeline is not None]

    def _read_control(self) -> None:
        """Notice a program that the switch loaded itself; raise ProgramError if its P4Info is invalid."""
        with self._lock:
            state, program = self._control.state, self._control.program
            if self._running is not None and self._running.context.state is state:
                return
            self._running = None
            if program is not None and state is not None and program.p4info.ByteSize():
                config = p4r.ForwardingPipelineConfig(p4info=program.p4info)
                self._from_files = program if program.entries is not None else self._from_files
                self._running = Pipeline(config, Context.of(Catalog(program), state, self._control))

    def load(self, request: p4r.SetForwardingPipelineConfigRequest) -> Pipeline | None:
        """Return the request's pipeline, ready to run; None for an action that has none. Changes nothing.

        Raises INVALID_ARGUMENT for a pipeline that the switch cannot run.
        """
        match request.action:
            case Action.VERIFY | Action.VERIFY_AND_SAVE | Action.VERIFY_AND_COMMIT | Action.RECONCILE_AND_COMMIT:
                return self._load(request)
            case Action.COMMIT if request.HasField("config"):
                raise invalid("COMMIT takes no config: it commits the one that was saved")
            case Action.COMMIT:
                return None
            case Action.UNSPECIFIED:
                raise invalid("the action is not specified")
            case other:
                raise unimplemented(f"action {other}")

    def apply(self, request: p4r.SetForwardingPipelineConfigRequest, loaded: Pipeline | None) -> None:
        """Perform the request's action with the result of `load`, completely or not at all."""
        match request.action:
            case Action.VERIFY_AND_SAVE:
                self._saved = loaded
            case Action.VERIFY_AND_COMMIT if loaded is not None:
                self._install(loaded)
            case Action.RECONCILE_AND_COMMIT if loaded is not None:
                self._reconcile(loaded)
            case Action.COMMIT if self._saved is None:
                raise P4RuntimeError(Code.NOT_FOUND, "no saved pipeline config: VERIFY_AND_SAVE comes first")
            case Action.COMMIT if self._saved is not None:
                _start_idle_times(self._saved.context)
                self._install(self._saved)

    def answer(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the requested parts of the current configuration; nothing if there is none."""
        response = p4r.GetForwardingPipelineConfigResponse()
        if self.current is None:
            return response
        config = self.current.config
        response.config.SetInParent()
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        if response_type in {Answer.ALL, Answer.P4INFO_AND_COOKIE}:
            response.config.p4info.CopyFrom(config.p4info)
        if response_type in {Answer.ALL, Answer.DEVICE_CONFIG_AND_COOKIE}:
            response.config.p4_device_config = config.p4_device_config
        return response

    def _load(self, request: p4r.SetForwardingPipelineConfigRequest) -> Pipeline:
        if not request.HasField("config"):
            raise invalid("the request has no config")
        config = _config(request.config.SerializeToString(deterministic=True))
        try:
            json = _device_json(config.p4_device_config)
            program = _program(json, config.p4info.SerializeToString(), self._entries(json, config.p4info))
            running = self.running
            if request.action == Action.RECONCILE_AND_COMMIT and running is not None and _same(running, program):
                return Pipeline(config, running.context)
            catalog = Catalog(program)
            prepared = self._control.prepare(program)
        except ProgramError as error:
            raise invalid(f"the pipeline was rejected: {error}") from error
        return Pipeline(config, Context.of(catalog, prepared.state, self._control), prepared)

    def _entries(self, json: bytes, p4info: p4i.P4Info) -> bytes | None:
        """Return the entries file of a pushed program: a push has none, but the switch may have started with one."""
        from_files = self._from_files
        return (
            from_files.entries
            if from_files is not None and from_files.source == json and from_files.p4info == p4info
            else None
        )

    def _reconcile(self, pipeline: Pipeline) -> None:
        """Keep every entry; the same program keeps running undisturbed, another one starts with all entries."""
        running = self.running
        if running is None:
            self._install(pipeline)
        elif pipeline.context is running.context:
            with self._lock:
                self._running, self._saved = pipeline, None
        else:
            with running.context.state.lock:  # packets that take this lock are not counted between copy and swap
                try:
                    _carry(running.context, pipeline.context)
                except EntryError as error:
                    raise invalid(f"cannot keep the forwarding state: {error}") from error
                self._install(pipeline)

    def _install(self, pipeline: Pipeline) -> None:
        if pipeline.prepared is None:  # it should have kept running, but the switch has loaded another one meanwhile
            raise P4RuntimeError(Code.ABORTED, "the switch has replaced its program in the meantime")
        with self._lock:
            self._control.install(pipeline.prepared)
            self._running, self._saved = Pipeline(pipeline.config, pipeline.context), None
        LOGGER.info("switch %d: running program %s", self._control.device_id, pipeline.context.catalog.program.name)


@lru_cache(maxsize=4)
def _config(data: bytes) -> p4r.ForwardingPipelineConfig:
    """Decode a configuration, megabytes long, once for all switches of this process that get it; nothing changes it."""
    return p4r.ForwardingPipelineConfig.FromString(data)


@lru_cache(maxsize=4)
def _program(json: bytes, p4info: bytes, entries: bytes | None) -> Program:
    """Read a program once for all switches of this process that run it; it is immutable."""
    return load_program(json, p4info, entries=entries)


def _same(pipeline: Pipeline, program: Program) -> bool:
    return pipeline.context.catalog.program.digest == program.digest


def _start_idle_times(context: Context) -> None:
    """Count the entries as hit now: no packet could hit them before."""
    now_us = context.control.now_ns() // 1_000
    with context.state.lock:
        for table in context.state.tables.values():
            for entry in table if table.spec.idle_timeout else ():
                entry.touch(now_us)


def _carry(source: Context, target: Context) -> None:
    """Copy what a controller has written into a fresh state; raise EntryError for entries that it cannot hold."""
    target.catalog.strings.adopt(source.catalog.strings)
    carry_over(source.state, target.state, source.catalog.program.actions, target.catalog.program.actions)
    target.idle.watch_all(target.state)
    for name, learner in source.learners.items():
        config, other = learner.config, target.catalog.digests_by_name.get(name)
        if config is None:
            continue
        if other is None or other.spec != source.catalog.digests_by_name[name].spec:
            raise EntryError(EntryFault.INVALID, "the new program has no such digest with the same fields", where=name)
        target.learners[name].configure(config)


def _device_json(data: bytes) -> bytes:
    """Return the bmv2 JSON: the bytes themselves, or what a P4DeviceConfig wraps, as for simple_switch_grpc."""
    if data.lstrip()[:1] == b"{":
        return data
    try:
        wrapper = empty_pb2.Empty.FromString(data)
    except DecodeError:
        return data
    fields = unknown_fields.UnknownFieldSet(wrapper)
    payloads = [fields[index].data for index in range(len(fields)) if fields[index].field_number == _DEVICE_DATA]
    return payloads[-1] if payloads and isinstance(payloads[-1], bytes) else data
