"""A kernel's Python into LLVM code: statements, expressions, operators, and what intrinsics become."""
