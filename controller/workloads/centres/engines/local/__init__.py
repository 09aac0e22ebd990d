"""Jobs as processes of this machine, each on cores of its own and in a control group, beside a small keeper."""
