"""Headers whose varbit does not begin on a byte boundary: splitting and joining them."""

from __future__ import annotations

from dataplane.native import Array, as_u8, kernel, u8, u64

HIGH_BYTE = 0xFF00


@kernel(inline=False)
def take_apart(  # noqa: PLR0917 - kernels have no keywords
    fixed: Array[u8], varbit: Array[u8], wire: Array[u8], before_bits: u64, nbytes: u64, size: u64
) -> None:
    """Split a header of `size` fixed bytes and `nbytes` of varbit after its first `before_bits` bits, no multiple of 8.

    The byte in which the varbit begins gives its first bits to the fixed ones, the byte in which it ends its last.
    """
    first = before_bits >> 3
    used = as_u8(before_bits & 7)
    for index in range(first):
        fixed[index] = wire[index]
    for index in range(nbytes):
        varbit[index] = wire[first + index] << used | wire[first + index + 1] >> (as_u8(8) - used)
    upper = as_u8(HIGH_BYTE >> (before_bits & 7))
    fixed[first] = (wire[first] & upper) | (wire[first + nbytes] & ~upper)
    for index in range(first + 1, size):
        fixed[index] = wire[nbytes + index]


@kernel(inline=False)
def put_together(  # noqa: PLR0917 - kernels have no keywords
    wire: Array[u8], fixed: Array[u8], varbit: Array[u8], before_bits: u64, nbytes: u64, size: u64
) -> None:
    """Do the reverse of `take_apart`."""
    first = before_bits >> 3
    used = as_u8(before_bits & 7)
    upper = as_u8(HIGH_BYTE >> (before_bits & 7))
    for index in range(first):
        wire[index] = fixed[index]
    carried = fixed[first] & upper
    for index in range(nbytes):
        wire[first + index] = carried | varbit[index] >> used
        carried = varbit[index] << (as_u8(8) - used)
    wire[first + nbytes] = carried | (fixed[first] & ~upper)
    for index in range(first + 1, size):
        wire[nbytes + index] = fixed[index]
