"""The collector's fast path: machine code that decodes, accounts and adds up reports in bulk.

`core` feeds it whole batches of payloads and hands back, one by one, those that only Python reads; `fallback` takes
what those say. `accumulator` and `sequence` are the state and the accounts, over `tables` of `structures` that
`kernels` work on; their plain twins are in `collectors.reference`.
"""
