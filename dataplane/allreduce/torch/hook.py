"""User interface: the communication hook, and the all-reduce of one tensor.

PyTorch compares the hook's annotations with its own types, so here they must not be strings.
"""

import logging

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.torch.group.process_group import MillraceProcessGroup
from dataplane.allreduce.torch.staging import DEVICES
from dataplane.allreduce.torch.state import FORMATS, MillraceState
from dataplane.errors import AllReduceError

logger = logging.getLogger("millrace.allreduce")


def millrace_hook(state: MillraceState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Start averaging a bucket of gradients over all workers; the backward pass continues meanwhile.

    For `DistributedDataParallel.register_comm_hook(state, millrace_hook)`. Without a result or a way around the switch,
    the backward pass raises an error naming what it waited for.
    """
    return state.submit(bucket.buffer(), mean=True)


def attach(model: DistributedDataParallel, state: MillraceState) -> None:
    """Register the hook with a model; log what else of the model waits for all workers, dead ones included.

    Raises AllReduceError naming the first parameter whose gradients could not be averaged.
    """
    _check_parameters(model)
    model.register_comm_hook(state, millrace_hook)
    waits = []
    if model.forward_sync_buffers and any(True for _ in model.module.buffers()):
        waits.append("forward_sync_buffers=True")
    if model.find_unused_parameters and not isinstance(model.process_group, MillraceProcessGroup):
        waits.append("find_unused_parameters=True")
    if waits:
        logger.warning(
            "DistributedDataParallel with %s uses its own process group in each step, "
            "which stops when a worker dies: training would not continue without it",
            " and ".join(waits),
        )


def _check_parameters(model: DistributedDataParallel) -> None:
    ignored = model.parameters_to_ignore
    for name, parameter in model.module.named_parameters():
        if not parameter.requires_grad or name in ignored:
            continue
        if parameter.dtype not in FORMATS or parameter.device.type not in DEVICES:
            raise AllReduceError(
                f"parameter {name} is of {parameter.dtype} on {parameter.device}: only gradients of float32, float16 "
                "and bfloat16 on cpu or cuda are averaged; convert it, as model.float() does for all, before "
                "DistributedDataParallel wraps the model"
            )


def all_reduce(tensor: torch.Tensor, state: MillraceState, *, mean: bool = False) -> torch.futures.Future[torch.Tensor]:
    """Start adding up a tensor over all workers, in place; the future holds the same tensor.

    For a sparse_coo tensor it holds a new one, with the same non-zero rows at all workers. A tensor may have any memory
    layout, or be empty. All workers call in the same order with tensors of the same shape and type.
    """
    return state.submit(tensor, mean=mean)
