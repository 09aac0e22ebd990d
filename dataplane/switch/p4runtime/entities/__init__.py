"""How each kind of P4Runtime entity is written and read; one kind a module.

`write(context, kind, message)` applies one update whole or raises. `read(context, message)` checks the request at once
and returns what it selects, encoded as the caller iterates.
"""
