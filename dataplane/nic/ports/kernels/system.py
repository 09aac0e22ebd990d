"""System calls that the kernels make, through the C library; Python does not call them from here."""

from __future__ import annotations

from dataplane.clock import NS_PER_S
from dataplane.native import Array, as_u64, external, i32, i64, kernel, stack_array, u8, u32, u64

CLOCK_REALTIME = 0
CLOCK_MONOTONIC = 1


@external
def __errno_location() -> Array[i32]:
    """Return the address of errno."""
    raise NotImplementedError


@external
def send(fd: i32, data: Array[u8], nbytes: u64, flags: i32) -> i64:
    """Send (send(2)); no data sends what is in a ring."""
    raise NotImplementedError


@external
def recv(fd: i32, data: Array[u8], nbytes: u64, flags: i32) -> i64:
    """Receive (recv(2)); no data wakes the receiver of a ring."""
    raise NotImplementedError


@external
def ioctl(fd: i32, request: u64, argument: Array[u8]) -> i32:
    """Ask a device (ioctl(2))."""
    raise NotImplementedError


@external
def clock_gettime(clock: i32, time: Array[i64]) -> i32:
    """Read a clock into struct timespec (clock_gettime(2))."""
    raise NotImplementedError


@external
def clock_nanosleep(clock: i32, flags: i32, duration: Array[i64], left: Array[i64]) -> i32:
    """Sleep for struct timespec (clock_nanosleep(2))."""
    raise NotImplementedError


@external
def getsockopt(fd: i32, level: i32, name: i32, value: Array[u32], nbytes: Array[u32]) -> i32:
    """Read an option (getsockopt(2))."""
    raise NotImplementedError


@external
def recvmmsg(fd: i32, vector: Array[u8], count: u32, flags: i32, timeout: Array[u8]) -> i32:
    """Receive into struct mmsghdr (recvmmsg(2))."""
    raise NotImplementedError


@external
def sendmmsg(fd: i32, vector: Array[u8], count: u32, flags: i32) -> i32:
    """Send from struct mmsghdr (sendmmsg(2))."""
    raise NotImplementedError


@kernel(inline=False)
def read_clock(clock: i32) -> u64:
    """Return a clock's time in ns."""
    instant = stack_array(i64, 2)
    clock_gettime(clock, instant)
    return as_u64(instant[0]) * NS_PER_S + as_u64(instant[1])


@kernel(inline=True)
def monotonic_ns() -> u64:
    """Return nanoseconds on the machine's monotonic clock."""
    return read_clock(CLOCK_MONOTONIC)


@kernel(inline=True)
def real_time_ns() -> u64:
    """Return CLOCK_REALTIME, which the kernel stamps frames with."""
    return read_clock(CLOCK_REALTIME)


@kernel(inline=True)
def last_error() -> i32:
    """Return the errno of the system call that has just failed."""
    return __errno_location()[0]
