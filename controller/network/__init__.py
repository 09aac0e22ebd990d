"""Network control: the controller daemon, tables over P4Runtime, gNMI, paths, aggregation in switches, content."""
