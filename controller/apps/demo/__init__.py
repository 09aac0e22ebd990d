"""`millrace demo`: the whole control loop on a real topology with real demands."""
