"""Work: tasks, task graphs, block requests, measured runs; read from published traces or generated from a seed."""
