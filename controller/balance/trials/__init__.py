"""Controllers tried on a model of a unit under loads of each kind: how they settle, and how often levers move."""
