"""The multi-engine system on a hybrid memory pool, decision by decision in virtual time, in whole ns and bytes.

`values` describe the system and its workload, and `pool.Pool` runs it in machine code; tests.reference.pool is its
readable reference. The simulation of a cluster, whose arithmetic it shares, replays pods and transfers that share links
at any moment; this one predicts each task when it is decided on, so that learning gets a hundred thousand decisions a
second.
"""
