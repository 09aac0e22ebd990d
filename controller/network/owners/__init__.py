"""Who owns which tables of switches: one owner for each part of them, all behind one protocol (`base.Owner`)."""
