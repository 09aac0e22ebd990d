"""The backend `millrace` of torch.distributed: sums of a job's workers over the switch, the rest by gloo or NCCL.

    import dataplane.allreduce.torch  # registers the backend
    torch.distributed.init_process_group("millrace", pg_options=JobOptions("10.9.0.1:9560", "resnet", "h1"))

A group with a job has one MillraceState, made at its first collective over the switch: all of these run in the order
in which they are called, which must be the same at all members, as with every backend. Broadcasts, gathers and barriers
are sums too (packing.py), so they survive what sums survive.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
import torch.distributed as dist

from dataplane.allreduce.torch.flight_recorder import Call, Tensors
from dataplane.allreduce.torch.group.packing import Parts, nbytes_of
from dataplane.allreduce.torch.group.works import CollectiveWork, CollectiveWorks, Future
from dataplane.allreduce.torch.options import Connect, JobOptions
from dataplane.allreduce.torch.staging import DEVICES, LAYOUTS
from dataplane.allreduce.torch.state import FORMATS, MillraceState
from dataplane.errors import AllReduceError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions

    _Nested: TypeAlias = torch.Tensor | Sequence["_Nested"]
    _Operation: TypeAlias = dist.ReduceOp | dist.ReduceOp.RedOpType

logger = logging.getLogger("millrace.allreduce")

NAME: Final = "millrace"
_FLOATS: Final = (torch.float32, torch.float16, torch.bfloat16)


class MillraceProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group over the switch, with gloo (and NCCL, for a GPU's tensors) for what is no sum there."""

    def __init__(
        self, store: dist.Store, rank: int, size: int, timeout: timedelta, *, name: str, connect: Connect | None
    ) -> None:
        """`connect` makes the state; without it everything goes to gloo or NCCL."""
        super().__init__(rank, size)  # the constructor that takes the store calls no method of a Python subclass
        self._store, self._connect, self._state_lock = store, connect, threading.Lock()
        self._state: MillraceState | None = None
        self._handed_on: set[str] = set()
        self._label = name
        self._others = _other_backends(store, rank, size, timeout)
        for device, (kind, backend) in self._others.items():
            self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        if connect is None:
            logger.info("group %s of %d: no job is stated for it, so it uses gloo or NCCL, not the switch", name, size)

    @property
    def state(self) -> MillraceState:
        """The state of the group's job, as the hook takes it; connects if no collective has done so yet.

        Raises AllReduceError if the group has no job.
        """
        with self._state_lock:
            if self._connect is None:
                raise AllReduceError(f"group {self._label} has no job: pass pg_options=JobOptions(...) when it is made")
            if self._state is None:
                self._state = self._connect(self)
            return self._state

    def allreduce(self, tensors: list[torch.Tensor], opts: dist.AllreduceOptions | None = None) -> dist.Work:
        """Add up, or average, in place."""
        opts = opts or dist.AllreduceOptions()
        mean = _mean_of(opts.reduceOp)
        if len(tensors) != 1 or not self._is_summed(tensors, mean):
            return self._hand_on("allreduce", opts.reduceOp, tensors, tensors, opts)
        return self._sum("all_reduce", tensors, mean)

    def allreduce_coalesced(
        self, tensors: list[torch.Tensor], opts: dist.AllreduceCoalescedOptions | None = None
    ) -> dist.Work:
        """Add up, or average, each in place."""
        opts = opts or dist.AllreduceCoalescedOptions()
        mean = _mean_of(opts.reduceOp)
        if not tensors or not self._is_summed(tensors, mean):
            return self._hand_on("allreduce_coalesced", opts.reduceOp, tensors, tensors, opts)
        return self._sum("allreduce_coalesced", tensors, mean)

    def reduce(self, tensors: list[torch.Tensor], opts: dist.ReduceOptions) -> dist.Work:
        """Add up, or average, in place at the root; other members keep their values."""
        mean = _mean_of(opts.reduceOp)
        if len(tensors) != 1 or not self._is_summed(tensors, mean):
            return self._hand_on("reduce", opts.reduceOp, tensors, tensors, opts)
        if self.rank() == opts.rootRank:
            return self._sum("reduce", tensors, mean)
        future = self._submit("reduce", tensors[0].detach().clone(), bool(mean), tensors, tensors)
        return CollectiveWork(future, lambda _: None, tensors)

    def reduce_scatter(
        self,
        output_tensors: list[torch.Tensor],
        input_tensors: list[list[torch.Tensor]],
        opts: dist.ReduceScatterOptions | None = None,
    ) -> dist.Work:
        """Add up one tensor for each member and keep this member's; they may differ in size."""
        opts = opts or dist.ReduceScatterOptions()
        mean, inputs = _mean_of(opts.reduceOp), input_tensors[0]
        if len(output_tensors) != 1 or not self._is_summed([*output_tensors, *inputs], mean, dense=True):
            return self._hand_on("reduce_scatter", opts.reduceOp, inputs, output_tensors, input_tensors, opts)
        values = torch.cat([each.detach().reshape(-1) for each in inputs])
        first = sum(each.numel() for each in inputs[: self.rank()])
        return self._sum_and_keep("reduce_scatter", values, first, output_tensors[0], mean=mean, inputs=inputs)

    def reduce_scatter_single(
        self, output: torch.Tensor, values: torch.Tensor, opts: dist.ReduceScatterOptions | None = None
    ) -> dist.Work:
        """Add up a tensor and keep this member's part."""
        opts = opts or dist.ReduceScatterOptions()
        mean = _mean_of(opts.reduceOp)
        if not self._is_summed([output, values], mean, dense=True):
            return self._hand_on("_reduce_scatter_base", opts.reduceOp, [values], output, values, opts)
        flat, first = values.detach().clone().reshape(-1), self.rank() * output.numel()
        return self._sum_and_keep("_reduce_scatter_base", flat, first, output, mean=mean, inputs=[values])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: dist.ReduceScatterOptions | None = None
    ) -> dist.Work:
        """Do `reduce_scatter_single` for each pair."""
        return CollectiveWorks([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def broadcast(self, tensors: list[torch.Tensor], opts: dist.BroadcastOptions) -> dist.Work:
        """Copy the root's tensor to all, to the bit, whatever its format."""
        if len(tensors) != 1 or not self._is_copied(tensors):
            return self._hand_on("broadcast", None, tensors, tensors, opts)
        parts = Parts((opts.rootRank,), nbytes_of(tensors[0]))
        return self._copy("broadcast", parts, tensors[0], tensors, tensors)

    def allgather(
        self,
        output_tensors: list[list[torch.Tensor]],
        input_tensors: list[torch.Tensor],
        opts: dist.AllgatherOptions | None = None,
    ) -> dist.Work:
        """Copy each member's tensor to all, to the bit; they have the same size."""
        opts = opts or dist.AllgatherOptions()
        is_even = len(input_tensors) == 1 and all(
            nbytes_of(each) == nbytes_of(input_tensors[0]) for each in output_tensors[0]
        )
        if not is_even or not self._is_copied([*input_tensors, *output_tensors[0]]):
            return self._hand_on("allgather", None, input_tensors, output_tensors, input_tensors, opts)
        return self._copy(
            "all_gather", self._parts(input_tensors[0]), input_tensors[0], output_tensors[0], output_tensors
        )

    def all_gather_single(
        self, output: torch.Tensor, values: torch.Tensor, opts: dist.AllgatherOptions | None = None
    ) -> dist.Work:
        """Copy each member's tensor to its part of all outputs, to the bit."""
        opts = opts or dist.AllgatherOptions()
        if not self._is_copied([output, values]) or nbytes_of(output) != self.size() * nbytes_of(values):
            return self._hand_on("_allgather_base", None, [values], output, values, opts)
        flat = output.detach().view(-1) if output.is_contiguous() else None
        if flat is None:
            return self._hand_on("_allgather_base", None, [values], output, values, opts)
        return self._copy("_all_gather_base", self._parts(values), values, flat.chunk(self.size()), [output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: dist.AllgatherOptions | None = None
    ) -> dist.Work:
        """Do `all_gather_single` for each pair."""
        return CollectiveWorks([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def barrier(self, opts: dist.BarrierOptions | None = None) -> dist.Work:
        """Wait for all members of the job."""
        if self._connect is None:
            return self._hand_on("barrier", None, [], opts or dist.BarrierOptions())
        return self._sum("barrier", [torch.ones(1, dtype=torch.int32)], mean=False)

    def shutdown(self) -> None:
        """Finish what was started, and leave the job."""
        with self._state_lock:
            state, self._connect = self._state, None
        if state is not None:
            state.close()

    def abort(self) -> None:
        """Leave the job without finishing: collectives without a result fail."""
        with self._state_lock:
            state, self._connect = self._state, None
        if state is not None:
            state.abandon()

    def get_group_store(self) -> dist.Store:
        """Return the group's store."""
        return self._store

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        """Return the backend's name."""
        return NAME

    def _is_summed(self, tensors: Sequence[torch.Tensor], mean: bool | None, *, dense: bool = False) -> bool:
        formats = _FLOATS if mean else FORMATS
        return (
            self._connect is not None
            and mean is not None
            and len({each.dtype for each in tensors}) == 1
            and all(each.dtype in formats and each.device.type in DEVICES for each in tensors)
            and all(each.layout in (LAYOUTS[:1] if dense else LAYOUTS) for each in tensors)
        )

    def _is_copied(self, tensors: Sequence[torch.Tensor]) -> bool:
        return self._connect is not None and all(
            each.layout == torch.strided and each.device.type in DEVICES for each in tensors
        )

    def _parts(self, values: torch.Tensor) -> Parts:
        return Parts(tuple(range(self.size())), nbytes_of(values))

    def _submit(
        self,
        name: str,
        values: torch.Tensor,
        mean: bool,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
    ) -> Future:
        return self.state.submit(values, mean=mean, call=Call(name, Tensors.of(inputs), Tensors.of(outputs)))

    def _sum(self, name: str, tensors: list[torch.Tensor], mean: bool | None) -> dist.Work:
        futures = [self._submit(name, each, bool(mean), [each], [each]) for each in tensors]

        def fill(target: torch.Tensor, sums: torch.Tensor) -> None:
            if sums is not target:  # a sparse tensor's sum is a new one; detach() would get the values, not the tensor
                with torch.no_grad():
                    target.copy_(sums)

        works = [
            CollectiveWork(future, partial(fill, target), [target])
            for future, target in zip(futures, tensors, strict=True)
        ]
        return works[0] if len(works) == 1 else CollectiveWorks(works)

    def _sum_and_keep(
        self,
        name: str,
        values: torch.Tensor,
        first: int,
        output: torch.Tensor,
        *,
        mean: bool | None,
        inputs: Sequence[torch.Tensor],
    ) -> dist.Work:
        future = self._submit(name, values, bool(mean), inputs, [output])

        def keep(sums: torch.Tensor) -> None:
            output.detach().copy_(sums[first : first + output.numel()].view(output.shape))

        return CollectiveWork(future, keep, [output])

    def _copy(
        self, name: str, parts: Parts, values: torch.Tensor, targets: Sequence[torch.Tensor], outputs: object
    ) -> dist.Work:
        future = self._submit(name, parts.pack(self.rank(), values), mean=False, inputs=[values], outputs=targets)
        return CollectiveWork(future, lambda sums: parts.unpack(sums, targets), outputs)

    def _hand_on(
        self, name: str, op: _Operation | None, tensors: Sequence[torch.Tensor], *arguments: object
    ) -> dist.Work:
        """Call gloo's or NCCL's collective; say so once for each kind."""
        device = tensors[0].device.type if tensors else "cpu"
        if device not in self._others:
            raise AllReduceError(f"group {self._label}: no backend has {name} for tensors on {device}")
        _, backend = self._others[device]
        if self._connect is not None:
            what = (
                f"{name}{'' if op is None else f' ({_kind(op).name})'} of {tensors[0].dtype if tensors else 'nothing'}"
            )
            if what not in self._handed_on:
                self._handed_on.add(what)
                logger.info("group %s: %s goes to %s, not over the switch", self._label, what, backend.name())
        work: dist.Work = getattr(backend, name)(*arguments)
        return work


def _delegate(name: str, at: int) -> Callable[..., dist.Work]:
    """Return a method that hands a collective on; argument `at` has its tensors."""

    def handed_on(self: MillraceProcessGroup, *arguments: object) -> dist.Work:
        return self._hand_on(name, None, _flat(arguments[at]), *arguments)

    handed_on.__name__, handed_on.__doc__ = name, "Hand it on to gloo or NCCL."
    return handed_on


for _name, _at in {
    "allgather_coalesced": 1,
    "gather": 1,
    "scatter": 0,
    "alltoall": 1,
    "alltoall_base": 1,
    "send": 0,
    "recv": 0,
    "recv_anysource": 0,
}.items():
    setattr(MillraceProcessGroup, _name, _delegate(_name, _at))
MillraceProcessGroup.all_to_all_single = MillraceProcessGroup.alltoall_base


def _flat(tensors: _Nested) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [each for part in tensors for each in _flat(part)]


def _mean_of(op: _Operation) -> bool | None:
    """Return whether an operation is a mean, False for a sum, None for anything else."""
    return {dist.ReduceOp.AVG: True, dist.ReduceOp.SUM: False}.get(_kind(op))


def _kind(op: _Operation) -> dist.ReduceOp.RedOpType:
    """Return the kind of an operation, which PyTorch gives bare or with a factor."""
    return op.op if isinstance(op, dist.ReduceOp) else op


def _other_backends(
    store: dist.Store, rank: int, size: int, timeout: timedelta
) -> dict[str, tuple[dist.ProcessGroup.BackendType, Any]]:
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo/", store), rank, size, timeout)
    kinds = dist.ProcessGroup.BackendType
    others: dict[str, tuple[dist.ProcessGroup.BackendType, Any]] = {"cpu": (kinds.GLOO, gloo)}
    if torch.cuda.is_available():
        others["cuda"] = (kinds.GLOO, gloo)
        if dist.is_nccl_available():
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = timeout  # noqa: SLF001 - as PyTorch's own groups set it
            others["cuda"] = (kinds.NCCL, dist.ProcessGroupNCCL(dist.PrefixStore("nccl/", store), rank, size, options))
    return others


def _create(group: _DistributedBackendOptions, options: JobOptions | Connect | None) -> MillraceProcessGroup:
    """Make a group, as torch.distributed asks for it."""
    is_default = not group.global_ranks_in_group
    if options is None and is_default:
        options = JobOptions.from_environment(os.environ)
    connect = options.connect if isinstance(options, JobOptions) else options
    if connect is not None and not callable(connect):
        raise AllReduceError(f"pg_options of backend millrace: {connect!r} is not JobOptions")
    store, rank, size, timeout = group.store, group.group_rank, group.group_size, group.timeout
    return MillraceProcessGroup(store, rank, size, timeout, name=group.group_id, connect=connect)


def register() -> None:
    """Make `millrace` a backend of torch.distributed, for tensors of CPUs and GPUs."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
