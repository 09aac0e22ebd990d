"""Which centre, which of its units, how many of them and when: what the meta-scheduler decides, as pure functions."""
