"""`millrace demo`: the whole circle on a real topology with real demands."""
