"""Random loss on a device's egress: a kernel program (tc-bpf(8)) in place of netem.

Most kernels have cls_bpf, but few of those of virtual machines and containers have netem. A frame is lost behind the
sending device, as if on the cable, and the sender does not notice. With tc's drop, this machine's TCP would know at
once.
"""

from __future__ import annotations

import ctypes
import os
import struct
from types import TracebackType
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from dataplane.errors import FabricError
from dataplane.fabric.kernel import namespaces
from dataplane.linux import bpf
from dataplane.topology.units import PPB, format_share

_MAP_TYPE_ARRAY, _PROG_TYPE_SCHED_CLS = 2, 3
_MAP_LOOKUP_ELEM, _GET_PRANDOM_U32 = 1, 7
_GO_ON, _STOLEN = -1, 4
"""TC_ACT_UNSPEC; TC_ACT_STOLEN, which frees the frame and reports it to its sender as sent."""
_EGRESS, _PREFERENCE = "ffff:fff3", 1
_WHOLE: Final = 1 << 32


class Losses:
    """Loses `loss_ppb` of 10^9 frames that a namespace's device sends, for as long as the device lives.

    `lost` counts them until `close`, which only stops the counting. Raises FabricError if the kernel refuses.
    """

    def __init__(self, namespace: str, device: str, loss_ppb: int) -> None:
        self._where = f"{namespace} {device}"
        self._count: int | None = None
        try:
            self._count = bpf.bpf(bpf.MAP_CREATE, struct.pack("=IIII", _MAP_TYPE_ARRAY, 4, 8, 1))
            program = bpf.load_program(_PROG_TYPE_SCHED_CLS, _code(loss_ppb, self._count))
            try:
                namespaces.call(namespace, lambda: _attach(device, program))
            finally:
                os.close(program)
        except (OSError, NetlinkError) as error:
            self.close()
            problem = f"a loss of {format_share(loss_ppb)} needs eBPF and cls_bpf of the kernel: {error}"
            raise FabricError(f"{self._where}: {problem}") from error

    def __enter__(self) -> Losses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def lost(self) -> int:
        """Frames lost so far; raises FabricError after `close`."""
        if self._count is None:
            raise FabricError(f"{self._where}: losses are not counted any more")
        key, value = ctypes.c_uint32(0), ctypes.c_uint64(0)
        bpf.bpf(
            bpf.MAP_LOOKUP,
            struct.pack("=IIQQQ", self._count, 0, ctypes.addressof(key), ctypes.addressof(value), 0),
        )
        return value.value

    def close(self) -> None:
        """Stop counting; idempotent."""
        if self._count is not None:
            os.close(self._count)
            self._count = None


def _code(loss_ppb: int, count: int) -> bytes:
    """Return the program: count and drop a frame if 32 random bits are below a bound."""
    bound = loss_ppb * _WHOLE // PPB
    return b"".join(
        [
            bpf.instruction(bpf.CALL, immediate=_GET_PRANDOM_U32),
            # The bound uses all 32 bits when everything is lost; an immediate would be sign-extended.
            bpf.instruction(bpf.LOAD_MAP, 1, immediate=_signed(bound)),
            bpf.instruction(0, immediate=bound >> 32),
            bpf.instruction(bpf.JUMP_IF_AT_LEAST, 0, 1, 11),
            bpf.instruction(bpf.STORE_WORD, 10, 0, -4),
            bpf.instruction(bpf.COPY, 2, 10),
            bpf.instruction(bpf.ADD, 2, immediate=-4),
            bpf.load_map(1, count),
            bpf.instruction(bpf.CALL, immediate=_MAP_LOOKUP_ELEM),
            bpf.instruction(bpf.JUMP_IF_EQUAL, 0, 0, 2),
            bpf.instruction(bpf.SET, 1, immediate=1),
            bpf.instruction(bpf.ADD_TO_MEMORY, 0, 1),
            bpf.instruction(bpf.SET, 0, immediate=_STOLEN),
            bpf.instruction(bpf.EXIT),
            bpf.instruction(bpf.SET, 0, immediate=_GO_ON),
            bpf.instruction(bpf.EXIT),
        ]
    )


def _signed(value: int) -> int:
    return ctypes.c_int32(value & (_WHOLE - 1)).value


def _attach(device: str, program: int) -> None:
    with IPRoute() as netlink:
        index = netlink.link_lookup(ifname=device)[0]
        netlink.tc("add", "clsact", index)
        netlink.tc(
            "add-filter",
            "bpf",
            index,
            ":1",
            fd=program,
            name="millrace-loss",
            parent=_EGRESS,
            prio=_PREFERENCE,
            direct_action=True,
        )
