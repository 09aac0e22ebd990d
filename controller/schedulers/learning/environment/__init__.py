"""The multi-engine system on a hybrid memory pool, decision by decision in virtual time, in whole ns and bytes.

`values` say what the system and its workload are, `plain.PlainPool` what happens.
"""
