"""Which switches add up which job, in which of their cells."""
