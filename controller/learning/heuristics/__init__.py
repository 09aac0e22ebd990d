"""Rules to beat, and to fall back on: `named` lists them, `pool`, `heft` and `jobs` implement them.

Ties go to the action after the last chosen one, in turn: a rule that takes the first of equals fills one node.
"""
