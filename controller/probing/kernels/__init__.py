"""The built-in probe kernels, a module for each family; nothing is imported before it is used."""
