"""Import of foreign topologies: GraphML, DOT, networkx's node-link JSON, containerlab's and Mininet's."""

from dataplane.topology.importing.convert import (
    Defaults,
    Imported,
    import_topology,
    is_foreign,
    is_importable,
    read_topology,
)

__all__ = ["Defaults", "Imported", "import_topology", "is_foreign", "is_importable", "read_topology"]
