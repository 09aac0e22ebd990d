"""P4Runtime sessions towards switches: the only user of the stubs on the controller side."""
