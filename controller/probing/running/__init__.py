"""Running a probe task as a separate program: `python -m controller.probing.running PROBE.json`.

It starts for each probe, in every unit, so it imports numpy and what the kernels need, and nothing else that is slow.
`command` reads the command line, `supervising` watches the process in which `work` runs the kernels, and `results`
holds the outcome.
"""
