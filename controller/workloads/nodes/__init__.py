"""Container manager of a node: what is bound to it runs, what nobody wants does not."""
