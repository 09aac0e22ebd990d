"""Rules for probe kernels that results and probe tasks name: a version is immutable, and deleted only while unused."""

from __future__ import annotations

from typing import Final

from controller.apiserver.registry.registry import Registry
from controller.apiserver.registry.selection import How, Selection, Term
from controller.apiserver.resources.probe_kernel import ProbeKernel
from controller.apiserver.resources.probe_task import PROBE_TASK
from controller.common.errors import StaleError

_PAGE: Final = 500


def check_unchanged(found: ProbeKernel, wanted: ProbeKernel) -> None:
    """Raise StaleError if the spec changes: results name the version that they were measured with."""
    if found.spec != wanted.spec:
        name = found.metadata.name
        raise StaleError(f"ProbeKernel {name} stays as it is: results name it; a change is a new version")


async def check_unused(registry: Registry, kernel: ProbeKernel) -> None:
    """Raise StaleError for a version that probe tasks use."""
    spec = kernel.spec
    selection = Selection(fields=(Term("kernel", How.EQUAL, spec.identifier),))
    users, after = list[str](), ""
    while True:
        page = await registry.list(PROBE_TASK, selection, after=after, limit=_PAGE)
        users += [
            probe.metadata.name
            for probe in page.items
            if any((use.kernel, use.version) == (spec.identifier, spec.version) for use in probe.spec.uses)
        ]
        if page.after is None:
            break
        after = page.after
    if users:
        rest = f" and {len(users) - 1} more" if len(users) > 1 else ""
        raise StaleError(f"ProbeKernel {kernel.metadata.name} is used by ProbeTask {users[0]}{rest}")
