"""Deadlines and turns of daemons, which share one event loop with much else."""
