"""How each kind of P4Runtime entity is written, read and put back; one kind a module.

`write(context, kind, message)` applies one update whole or raises. `undo(context, message)`, called before it, returns
what puts the entity back into its present state. `read(context, message)` checks the request at once and returns what
it selects, encoded as the caller iterates.
"""
