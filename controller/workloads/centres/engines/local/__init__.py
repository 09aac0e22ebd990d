"""Jobs as processes of this machine, each on its own cores and in a control group, with a small keeper."""
