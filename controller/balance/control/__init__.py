"""Maps a unit's error to an output: PID, start gains, fuzzy adaptation, tuning, stability; pure functions of values."""
