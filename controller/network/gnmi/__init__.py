"""gNMI sessions towards switches: what their ports and hellos are like, and which hellos they say."""
