"""Container manager of a node: runs the pods bound to it, removes those that are no longer wanted."""
