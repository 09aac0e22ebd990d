"""A real pool of hybrid memory: tiers of several machines, blocks that move between them, requests that use both.

`host` holds a machine's tiers and serves their blocks; `pool` decides where a request runs, moves the blocks that it
needs, and evicts the least recently used ones. The simulated pool is `controller.learning.environment`.
"""
