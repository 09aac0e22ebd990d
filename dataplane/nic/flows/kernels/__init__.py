"""The flow classifier in native code: a frame into its key, the key into the rule that matches."""
