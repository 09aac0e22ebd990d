"""The agent: networks that tell an action's value, a decider that uses them, and training that never holds it up.

- `settings`, `weights`, `inference`, `deciding`: what decides; needs numpy alone
- `network`, `buffer`, `losses`, `batches`, `optimisers`, `learner`, `training`: what
  learns; needs PyTorch, the extra `torch`
- `records`, `resuming`: experience and checkpoints as bytes
- `agents`: all of it together
"""
