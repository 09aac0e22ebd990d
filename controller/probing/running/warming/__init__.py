"""What runners know of a warm process (`running.warm`): how to hand over to it, and what imports it has saved them."""
