"""The collector's fast path: machine code that decodes, accounts and adds up stacked INT-MD reports in bulk.

`store` and `accounting` keep in native memory what `collectors.state.accumulator` and `collectors.decode.sequence` keep
in Python; `bulk` feeds them whole batches of payloads and hands back, one by one, those that only the reference
understands.
"""
