"""What users call: the communication hook, and the all-reduce of one tensor.

PyTorch compares the hook's annotations with its own types, so that here they must not be text.
"""

import torch
import torch.distributed as dist

from dataplane.allreduce.torch.state import MillraceState


def millrace_hook(state: MillraceState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Begin to average a bucket of gradients over all workers; the backward pass goes on meanwhile.

    For `DistributedDataParallel.register_comm_hook(state, millrace_hook)`. If there is no result, and no way around the
    switch either, the backward pass raises with what it waited for.
    """
    return state.submit(bucket.buffer(), mean=True)


def all_reduce(tensor: torch.Tensor, state: MillraceState, *, mean: bool = False) -> torch.futures.Future[torch.Tensor]:
    """Begin to add up a tensor over all workers, in place; the future holds the same tensor.

    It may have any layout, or be empty. All workers call in the same order with tensors of the same shape and type.
    """
    return state.submit(tensor, mean=mean)
