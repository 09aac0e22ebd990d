"""DPDK beneath a port: what is there of it is found when the first such port opens, and nothing needs it before.

shim.py builds and loads shim.c; environment.py starts DPDK, once a process; port.py makes ports and their queues.
"""
