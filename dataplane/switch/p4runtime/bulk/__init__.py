"""Inserts in bulk: WriteRequests decoded by a kernel into rows of words, which tables take many at a time.

Rows hold what most entries have: match, priority, an action with its arguments, numbers of at most 64 bits. The kernel
leaves out every other update, and every one with an error, and P4Runtime's own modules take it.
"""
