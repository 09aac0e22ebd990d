"""Translation of a kernel's Python into LLVM code: statements, expressions, operators and intrinsics."""
