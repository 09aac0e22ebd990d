"""Code for values: fields, expressions, copies, hashes, and their locations."""
