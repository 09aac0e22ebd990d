"""Writing, reading and restoring of each kind of P4Runtime entity; one kind per module.

`write(context, kind, message)` applies one update whole or raises. `undo(context, message)`, called before it, returns
a function that restores the entity's present state. `read(context, message)` checks the request at once and returns the
selected entities, encoded as the caller iterates.
"""
