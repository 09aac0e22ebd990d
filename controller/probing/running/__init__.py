"""Running a probe task as a program of its own: `python -m controller.probing.running PROBE.json`.

It starts anew for each probe, in every unit, so it imports numpy and what the kernels need, and nothing else that is
slow. `command` reads the command line, `supervising` keeps watch over the process in which `work` runs the kernels, and
`results` is what is left behind.
"""
