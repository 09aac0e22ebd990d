"""The collector in plain Python, which one can read: what tests compare the native core with.

`core: reference` in the settings runs it; nothing else in production imports it. What both use lies beside it: decoding
in `collectors.decode`, state in `collectors.state`, windows and sketches in `collectors.statistics`.
"""
