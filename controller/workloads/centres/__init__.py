"""Agent of a compute centre: the centre's resources as units, the tasks that run on them, and its probe results."""
