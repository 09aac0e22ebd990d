"""`millrace probe kernels`: the library of probe kernels."""
