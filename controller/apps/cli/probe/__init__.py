"""`millrace probe`: what compute centres really deliver, measured by probe tasks of kernels."""
