"""Named content in the network: its own package, since readers and writers of names need no all-reduce."""
