"""Dispatch of the API server's tasks: waiting tasks go to compute centres, probes first."""
