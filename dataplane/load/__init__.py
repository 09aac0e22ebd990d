"""Load of a daemon as it measures it itself: processor time, event loop, queues, drops, and causes of overload."""
