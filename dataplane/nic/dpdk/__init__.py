"""DPDK beneath a port: its libraries are looked up when the first such port opens; nothing needs them before.

shim.py builds and loads shim.c; environment.py starts DPDK, once per process; port.py makes ports and their queues.
"""
