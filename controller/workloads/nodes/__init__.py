"""Container manager of a node: runs the pods bound to it and removes those no longer wanted."""
