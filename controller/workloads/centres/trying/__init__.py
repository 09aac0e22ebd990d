"""Trials of probe kernels on a centre's units: the kernels, the jobs that try them, and those jobs' program."""
