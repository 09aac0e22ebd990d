"""Errors of container runtimes.

ControllerError
└── ContainerError             a container runtime cannot do what was asked; names the container or the image
    ├── OrderError             what is asked for is refused, or is nothing that this runtime can do
    ├── ImageError             an image is not there, or is not what it should be
    ├── NoSuchContainerError   there is no such container (any more)
    ├── RuntimeTimeoutError    the runtime did not answer in time
    └── RuntimeAwayError       the runtime is not there: no program, no socket, or nobody behind it
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class ContainerError(ControllerError):
    """A container runtime cannot do what was asked; one line that names the container or the image."""


class OrderError(ContainerError):
    """What is asked for is refused, or is nothing that this runtime can do; nothing was made."""


class ImageError(ContainerError):
    """An image is not there, cannot be read, or has another digest than it should have."""


class NoSuchContainerError(ContainerError):
    """There is no such container (any more)."""


class RuntimeTimeoutError(ContainerError):
    """The runtime did not answer within the deadline; whether it does later what was asked is not known."""

    def __init__(self, runtime: str, doing: str, deadline_s: float) -> None:
        self.runtime, self.doing, self.deadline_s = runtime, doing, deadline_s
        super().__init__(f"{runtime}: {doing}: no answer within {deadline_s:g} s")


class RuntimeAwayError(ContainerError):
    """The runtime is not there: no program, no socket, or nobody behind it."""
