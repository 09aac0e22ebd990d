"""Which centre, which of its units, how many of them and when: what the task scheduler decides, as pure functions."""
