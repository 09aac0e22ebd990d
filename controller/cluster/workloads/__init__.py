"""Work: tasks, task graphs, requests for blocks, measured runs; read from published traces or drawn by a seed."""
