"""Compiled P4 programs at work: packets, queues and threads around the functions that the compiler makes."""
