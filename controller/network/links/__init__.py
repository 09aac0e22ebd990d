"""Links between switches that die: their condition by ports, hellos and loss, and its publication."""
