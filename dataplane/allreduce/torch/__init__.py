"""The network adds up the gradients of an unpatched PyTorch: a communication hook for DistributedDataParallel.

    state = MillraceState(reducer)
    model = DistributedDataParallel(model)
    model.register_comm_hook(state, millrace_hook)

Needs `pip install millrace[torch]`; nothing else in Millrace imports PyTorch.
"""

from dataplane.allreduce.torch.hook import all_reduce, millrace_hook
from dataplane.allreduce.torch.state import MillraceState

__all__ = ["MillraceState", "all_reduce", "millrace_hook"]
