"""The store in plain Python: what the P4 program is compared with, and what is explored."""
