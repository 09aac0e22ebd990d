"""A daemon's own measurement of its load: processor time, event loop, queues, drops, and causes of overload."""
