"""The cost map as others ask for it: an ALTO server (RFC 7285) with performance metrics (RFC 9439)."""
