"""What people start: the commands, the supervisor of one machine, the demos."""
