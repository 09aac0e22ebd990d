"""What runs a centre's jobs, behind one interface (base.py)."""
