"""A cluster in virtual time: tasks, shares of nodes, and transfers at flow level over the cost map's routing."""
