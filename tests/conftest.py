"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure: what is slow shows in --durations, not in a deadline.
settings.register_profile("millrace", deadline=None)
settings.load_profile("millrace")
