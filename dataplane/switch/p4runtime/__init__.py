"""The P4Runtime service of the built-in switch."""
