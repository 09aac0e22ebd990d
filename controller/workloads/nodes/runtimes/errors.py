"""Errors of container runtimes.

ControllerError
└── ContainerError             a container runtime cannot do what was asked; names the container or the image
    ├── OrderError             the order is refused, or this runtime cannot carry it out
    ├── ImageError             an image is missing or invalid
    ├── NoSuchContainerError   the container does not exist, or no longer
    ├── RuntimeTimeoutError    the runtime did not answer in time
    └── RuntimeAwayError       the runtime is away: no program, no socket, or nobody behind it
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class ContainerError(ControllerError):
    """A container runtime failed; one line that names the container or the image."""


class OrderError(ContainerError):
    """The order is refused, or this runtime cannot carry it out; nothing was made."""


class ImageError(ContainerError):
    """An image is missing, cannot be read, or has another digest than it should have."""


class NoSuchContainerError(ContainerError):
    """The container does not exist, or no longer."""


class RuntimeTimeoutError(ContainerError):
    """The runtime did not answer within the deadline; it may still carry out the call later."""

    def __init__(self, runtime: str, doing: str, deadline_s: float) -> None:
        self.runtime, self.doing, self.deadline_s = runtime, doing, deadline_s
        super().__init__(f"{runtime}: {doing}: no answer within {deadline_s:g} s")


class RuntimeAwayError(ContainerError):
    """The runtime is away: no program, no socket, or nobody behind it."""
