"""One unit's loop on a real machine: sensors, the controller, the rule, levers, and the handling of their failures."""
