"""`millrace demo training`: workers in a kernel fabric train over a switch; a worker dies, then the switch."""
