"""The driver: requests a connection from a device, binds to it, and polls its queues in a thread."""
