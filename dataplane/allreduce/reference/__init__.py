"""The slot protocol in plain Python: what P4 program and packet engine are compared with, and what is explored."""
