"""The management service of unit pools: turns holders' reports into wanted units, and these into shares."""
