"""Named content in the network; a separate package, since its readers and writers need no all-reduce."""
