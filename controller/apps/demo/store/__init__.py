"""`millrace demo store`: named content that switches serve, in virtual time."""
