"""Forwarding-pipeline configurations: checked, saved, committed, read back (specification, sections 7, 13 and 14)."""

from __future__ import annotations

from dataclasses import dataclass

from finsy.proto import p4r
from google.protobuf import empty_pb2, unknown_fields
from google.protobuf.message import DecodeError

from dataplane.errors import EntryError, ProgramError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.tables import ForwardingState, carry_over

_DEVICE_DATA = 3
"""The field of the withdrawn p4.tmp.P4DeviceConfig that holds the JSON."""

Action = p4r.SetForwardingPipelineConfigRequest
Answer = p4r.GetForwardingPipelineConfigRequest


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A configuration as it was sent, and what became of it."""

    config: p4r.ForwardingPipelineConfig
    context: Context


class PipelineStore:
    """The running pipeline, and the one that is saved but not yet committed.

    While one is saved, reads and writes go to the saved one's state; COMMIT puts that state to work.
    """

    def __init__(self, control: SwitchControl) -> None:
        self._control = control
        self._saved: Pipeline | None = None
        self._running: Pipeline | None = None
        self._read_control()

    @property
    def current(self) -> Pipeline | None:
        """The pipeline that reads and writes refer to."""
        return self._saved or self.running

    @property
    def running(self) -> Pipeline | None:
        """The pipeline that packets see; one that the switch was started with counts if its P4Info is known."""
        self._read_control()
        return self._running

    def _read_control(self) -> None:
        """Notice a program that the switch took by itself; raise ProgramError if its P4Info makes no sense."""
        state, program = self._control.state, self._control.program
        if self._running is None or self._running.context.state is not state:
            self._running = None
            if program is not None and state is not None and program.p4info.ByteSize():
                config = p4r.ForwardingPipelineConfig(p4info=program.p4info)
                self._running = Pipeline(config, Context(Catalog(program), state))

    def apply(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        """Do what the request's action says, wholly or not at all; raise P4RuntimeError."""
        match request.action:
            case Action.VERIFY:
                self._load(request)
            case Action.VERIFY_AND_SAVE:
                self._saved = self._load(request)
            case Action.VERIFY_AND_COMMIT:
                self._commit(self._load(request), carry=None)
            case Action.COMMIT:
                self._commit_saved(request)
            case Action.RECONCILE_AND_COMMIT:
                self._reconcile(self._load(request))
            case Action.UNSPECIFIED:
                raise invalid("the action is not specified")
            case other:
                raise unimplemented(f"action {other}")

    def answer(
        self, response_type: p4r.GetForwardingPipelineConfigRequest.ResponseType.ValueType
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the parts of the current configuration that are asked for; nothing if there is none."""
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
        config = p4r.ForwardingPipelineConfig()
        config.CopyFrom(request.config)
        try:
            program = load_program(_device_json(config.p4_device_config), config.p4info.SerializeToString())
            return Pipeline(config, Context(Catalog(program), ForwardingState(program)))
        except ProgramError as error:
            raise invalid(f"the pipeline is refused: {error}") from error

    def _commit_saved(self, request: p4r.SetForwardingPipelineConfigRequest) -> None:
        if request.HasField("config"):
            raise invalid("COMMIT takes no config: it commits the one that was saved")
        if self._saved is None:
            raise P4RuntimeError(Code.NOT_FOUND, "no saved pipeline config: VERIFY_AND_SAVE comes first")
        self._commit(self._saved, carry=self._saved.context)

    def _reconcile(self, pipeline: Pipeline) -> None:
        """Keep every entry; the same program goes on running untouched, another one starts with all entries."""
        running = self.running
        if running is not None and _program(running).digest == _program(pipeline).digest:
            self._running, self._saved = Pipeline(pipeline.config, running.context), None
            return
        self._commit(pipeline, carry=None if running is None else running.context)

    def _commit(self, pipeline: Pipeline, *, carry: Context | None) -> None:
        """Make the switch run the program over fresh state, with the entries of `carry` in it."""
        program = _program(pipeline)
        try:
            if carry is None:
                state = self._control.commit(program)
            else:
                with carry.state.lock:  # no packet may be counted between the copy and the exchange
                    state = self._control.commit(program, lambda fresh: _carry(carry, program, fresh))
        except ProgramError as error:
            raise invalid(f"the pipeline is refused: {error}") from error
        except EntryError as error:
            raise invalid(f"the forwarding state cannot be kept: {error}") from error
        self._running, self._saved = Pipeline(pipeline.config, Context(pipeline.context.catalog, state)), None


def _program(pipeline: Pipeline) -> Program:
    return pipeline.context.catalog.program


def _carry(source: Context, program: Program, fresh: ForwardingState) -> None:
    carry_over(source.state, fresh, source.catalog.program.actions, program.actions)


def _device_json(data: bytes) -> bytes:
    """Return the bmv2 JSON: the bytes themselves, or what a P4DeviceConfig wraps, as for simple_switch_grpc."""
    if data.lstrip()[:1] == b"{":
        return data
    try:
        wrapper = empty_pb2.Empty.FromString(data)
    except DecodeError:
        return data
    fields = unknown_fields.UnknownFieldSet(wrapper)
    found = [fields[index].data for index in range(len(fields)) if fields[index].field_number == _DEVICE_DATA]
    return found[-1] if found and isinstance(found[-1], bytes) else data
