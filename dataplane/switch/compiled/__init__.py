"""Runtime of compiled P4 programs: packets, queues and threads around the compiler's functions."""
