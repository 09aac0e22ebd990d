"""Commands of pools of hybrid memory."""
