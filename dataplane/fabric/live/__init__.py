"""Fabric daemon: switches, cables and hosts that stay up, in paced virtual time or in namespaces."""
