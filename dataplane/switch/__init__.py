"""The switch: pipelines, tables, traffic manager, ports and the P4Runtime service."""
