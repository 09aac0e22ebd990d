"""Import of foreign topologies: GraphML, DOT and networkx's node-link JSON."""

from dataplane.topology.importing.convert import Defaults, Imported, import_topology, is_importable

__all__ = ["Defaults", "Imported", "import_topology", "is_importable"]
