"""A statement's operators as steps: each is planned with a device, and runs there."""
