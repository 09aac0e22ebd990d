"""The driver: asks a device for a connection, binds to what it answers, polls its queues in a thread."""
