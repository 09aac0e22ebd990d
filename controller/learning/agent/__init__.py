"""The agent: networks that estimate the values of actions, a decider that uses them, and training that never blocks it.

- `settings`, `weights`, `inference`, `deciding`: the deciding part; needs only numpy
- `network`, `buffer`, `losses`, `batches`, `optimisers`, `learner`, `training`: the
  learning part; needs PyTorch, the extra `torch`
- `records`, `resuming`: experience and checkpoints as bytes
- `agents`: everything combined
"""
