"""Tables in plain Python that is right by inspection: what indices are compared with."""
