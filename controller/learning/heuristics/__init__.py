"""Rules to be better than, and to fall back on: `named` lists them, `pool`, `heft` and `jobs` are what they do.

Where several actions are equally good the one after the last chosen is taken, in turn: a rule that takes the first of
equals fills one node.
"""
