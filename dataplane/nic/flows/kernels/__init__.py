"""The flow classifier in native code: builds a frame's key and finds the matching rule."""
