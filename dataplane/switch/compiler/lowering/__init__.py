"""Code for values: fields, expressions, copies, hashes, and where all of them lie."""
