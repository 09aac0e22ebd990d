"""Core control: memory for buffers of any size, and the software queues between driver threads and users."""
