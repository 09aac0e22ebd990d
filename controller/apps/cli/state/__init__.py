"""`millrace table`, `counter` and `register`: one module a group of commands."""
