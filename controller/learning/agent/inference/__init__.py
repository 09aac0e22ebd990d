"""Values of actions from a weight set, fast on one core: used for decisions instead of the training modules.

Decisions take less time with products folded once, when weights are published: products of matrices that follow each
other without anything between them. Tests compare each with the modules of `agent.network`.
"""
