"""gNMI sessions to switches: the state of their ports and hellos, and the hellos to send."""
