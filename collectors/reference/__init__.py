"""The collector in readable plain Python, with which tests compare the native core.

`core: reference` in the settings runs it; nothing else in production imports it. Code shared by both is elsewhere:
decoding in `collectors.decode`, state in `collectors.state`, windows and sketches in `collectors.statistics`.
"""
