"""In-network gradient sums for an unpatched PyTorch: a hook for DistributedDataParallel, and a process-group backend.

    state = MillraceState.connect("10.9.0.1:9560", job="resnet", host="h1", workers=4)
    model = DistributedDataParallel(model, forward_sync_buffers=False)
    model.register_comm_hook(state, millrace_hook)

or, for all collectives: `init_process_group("millrace", pg_options=JobOptions("10.9.0.1:9560", "resnet", "h1"))`, a
backend that this import registers.

Needs PyTorch, the extra `torch` of the distribution; in Millrace only the demo's workers import it.
"""

from dataplane.allreduce.torch.group.process_group import register
from dataplane.allreduce.torch.hook import all_reduce, attach, millrace_hook
from dataplane.allreduce.torch.options import JobOptions
from dataplane.allreduce.torch.state import MillraceState
from dataplane.allreduce.torch.transferred import joined, split

__all__ = ["JobOptions", "MillraceState", "all_reduce", "attach", "joined", "millrace_hook", "split"]

register()
