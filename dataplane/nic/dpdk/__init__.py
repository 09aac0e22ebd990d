"""DPDK beneath a port: its libraries are looked for when the first such port opens, and nothing needs them before.

shim.py builds and loads shim.c; environment.py starts DPDK, once a process; port.py makes ports and their queues.
"""
