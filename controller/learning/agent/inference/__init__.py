"""Values of actions from a weight set, fast on one core: what decides runs this, not the modules that train.

A processor decides in less time for what is folded once, when weights are published: products of matrices that follow
each other without anything between them. Tests hold each against the modules of `agent.network`.
"""
