"""The cost map for other programs: an ALTO server (RFC 7285) with performance metrics (RFC 9439)."""
