"""Names of images that come with an order."""

from __future__ import annotations

from controller.common import image_names
from controller.common.image_names import Reference
from controller.workloads.nodes.runtimes.errors import ImageError


def parse_reference(text: str) -> Reference:
    """Return a name's parts; raise ImageError for an invalid name."""
    try:
        return image_names.parse_reference(text)
    except ValueError as error:
        raise ImageError(str(error)) from None
