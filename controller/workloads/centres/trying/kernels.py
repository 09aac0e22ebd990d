"""The probe kernels that a centre tries: the built-in ones, overlaid with those of the API's store."""

from __future__ import annotations

import logging
import time
from typing import Final

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import ProbeKernel as ProbeKernelResource
from controller.common.errors import ApiError
from controller.probing.errors import ProbeError
from controller.probing.kernel_files import of_spec
from controller.probing.library import KernelLibrary
from controller.probing.values import ProbeKernel
from controller.workloads.centres.settings import CentreSettings

LOGGER: Final = logging.getLogger("millrace.centre")
_AGAIN_S: Final = 10.0


class Kernels:
    """The library as last read; it is reread from time to time, as kernels are added and changed."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._stored: tuple[ProbeKernel, ...] = ()
        self._read_s: float | None = None

    async def wanted(self, settings: CentreSettings) -> tuple[ProbeKernel, ...]:
        """Return the kernels to try, sorted; raise ProbeKernelError for an unknown one.

        While the API is away the last known ones count, at first the built-in ones.
        """
        if settings.trial.kernels == ():
            return ()
        if self._read_s is None or time.monotonic() - self._read_s > _AGAIN_S:
            try:
                resources = (await self._client.of(ProbeKernelResource).list()).items
            except ApiError as error:
                LOGGER.debug("kernels: %s", error)
            else:
                self._stored, self._read_s = tuple(_values(resources)), time.monotonic()
        library = KernelLibrary(self._stored)
        names = settings.trial.kernels
        return library.kernels() if names is None else tuple(library.kernel(name) for name in sorted(set(names)))


def _values(resources: tuple[ProbeKernelResource, ...]) -> list[ProbeKernel]:
    """Return stored kernels as values; invalid ones are left out and logged."""
    values = []
    for resource in resources:
        try:
            values.append(of_spec(resource.spec))
        except ProbeError as error:
            LOGGER.warning("ProbeKernel %s: %s", resource.metadata.name, error)
    return values
