"""Memory of forwarding threads: packet buffers, rings, queues and each thread's own state."""
