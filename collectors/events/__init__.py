"""Events: rules over the snapshot's figures, thresholds and change points, with evidence."""
