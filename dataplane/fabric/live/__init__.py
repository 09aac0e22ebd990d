"""A fabric as a daemon: switches, cables and hosts that stay up, in virtual time beside the clock or in namespaces."""
