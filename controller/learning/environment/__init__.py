"""The multi-engine system on a hybrid memory pool, decision by decision in virtual time, in whole ns and bytes.

`values` say what the system and its workload are. `plain.PlainPool` says what happens, `pool.Pool` does it in machine
code. It stands beside the simulation of a cluster, with whose kernels it shares arithmetic: that one replays pods and
transfers that share links at any moment, and this one foretells each task when it is decided on, so that learning gets
a hundred thousand decisions a second.
"""
