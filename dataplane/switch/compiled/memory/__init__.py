"""What forwarding threads work in: packet buffers, rings, queues and each thread's own memory."""
