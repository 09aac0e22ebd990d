"""One unit's loop on a real machine: sensors, the controller, the rule, levers; what happens when one of them fails."""
