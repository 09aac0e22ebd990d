"""Fabrics in virtual time: one process, one clock, exact rates and delays, no root."""

from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.fabric.virtual.host import VirtualHost

__all__ = ["VirtualFabric", "VirtualHost"]
