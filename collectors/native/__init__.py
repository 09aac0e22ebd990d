"""The collector's fast path: machine code that decodes, accounts and adds up reports in bulk.

`core` feeds it whole batches of payloads and returns, one by one, the payloads that only Python can read; `fallback`
takes their contents. `accumulator` and `sequence` are the state and the accounts, over `tables` of `structures` that
`kernels` work on; their plain twins are in `collectors.reference`.
"""
