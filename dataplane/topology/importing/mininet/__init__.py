"""Custom topologies of Mininet: Python files, of which a safe part is interpreted; none of their code is executed."""

from dataplane.topology.importing.mininet.reading import read_mininet

__all__ = ["read_mininet"]
