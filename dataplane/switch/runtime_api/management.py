"""Methods on the switch itself: its program, its ports, and bmv2 features that are configured differently here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.pipeline import PreparedProgram
from dataplane.switch.runtime_api.arrays import ArrayMethods
from dataplane.switch.runtime_api.calls import UnsupportedCallError
from dataplane.switch.runtime_api.profiles import ProfileMethods
from dataplane.switch.runtime_api.records import (
    HashConfig,
    HashRefusal,
    LearnRefusal,
    LookupRefusal,
    PortInfo,
    PortRefusal,
    SwapCode,
    SwapRefusal,
    SwitchInfo,
)
from dataplane.switch.runtime_api.runtime import Runtime
from dataplane.switch.runtime_api.tables import TableMethods

_NOT_HERE = 3
_LISTS = ("action_profiles", "counter_arrays", "meter_arrays", "register_arrays", "learn_lists")


class StandardMethods(TableMethods, ProfileMethods, ArrayMethods):
    """All methods of `standard`."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._loaded: PreparedProgram | None = None

    # ---- the program

    def bm_load_new_config(self, text: str) -> None:
        """Make a program ready to run; the present one continues."""
        try:
            self._loaded = self.runtime.control.prepare(load_program(text.encode(), None))
        except ProgramError as error:
            raise UnsupportedCallError(str(error)) from error

    def bm_swap_configs(self) -> None:
        """Run the prepared program, with empty tables."""
        loaded, self._loaded = self._loaded, None
        if loaded is None:
            raise SwapRefusal(SwapCode.NO_ONGOING_SWAP)
        self.runtime.control.install(loaded)

    def bm_reset_state(self) -> None:
        """Empty tables, counters and registers."""
        self.runtime.control.install(self.runtime.control.prepare(self._program()))

    def bm_get_config(self) -> str:
        """Return the JSON of the running program."""
        return self._program().source.decode()

    def bm_get_config_md5(self) -> bytes:
        """Return the MD5 digest of that JSON, by which clients identify it."""
        return hashlib.md5(self._program().source, usedforsecurity=False).digest()

    def bm_get_id_from_name(self, _: int, kind: int, name: str) -> int:
        """Return the JSON's id of a table (kind 0), profile, counter, meter, register, learn list (5)."""
        document = json.loads(self._program().source)
        pipelines = document.get("pipelines", [])
        if kind == 0:
            items = [table for pipeline in pipelines for table in pipeline["tables"]]
        elif kind == 1:
            items = [profile for pipeline in pipelines for profile in pipeline.get("action_profiles", [])]
        elif 0 < kind <= len(_LISTS):
            items = document.get(_LISTS[kind - 1], [])
        else:
            raise LookupRefusal(0)
        identifier = next((item["id"] for item in items if item["name"] == name), None)
        if identifier is None:
            raise LookupRefusal(1)
        return int(identifier)

    def _program(self) -> Program:
        program = self.runtime.control.program
        if program is None:
            raise UnsupportedCallError("the switch has no program yet")
        return program

    # ---- the switch and its ports

    def bm_mgmt_get_info(self) -> SwitchInfo:
        """Return the device id and the port of this API."""
        device = self.runtime.control.device_id
        return SwitchInfo(device - (1 << 64) if device >> 63 else device, self.runtime.port)

    def bm_dev_mgr_show_ports(self) -> list[PortInfo]:
        """Return every port."""
        states = self.runtime.control.port_states()
        return [PortInfo(number, state.device, state.is_open, {}) for number, state in states.items()]

    def bm_dev_mgr_add_port(self, device: str, port: int, capture: str) -> None:
        """Switch a removed port on again; refuse others: ports are opened when the switch starts."""
        state = self.runtime.control.port_states().get(port)
        if state is None or state.device != device or capture:
            raise PortRefusal(1)
        self.runtime.control.set_admin(port, up=True)

    def bm_dev_mgr_remove_port(self, port: int) -> None:
        """Switch a port off."""
        if port not in self.runtime.control.port_states():
            raise PortRefusal(1)
        self.runtime.control.set_admin(port, up=False)

    # ---- features configured differently here

    def bm_learning_ack(self, _: int, digest: int, buffer: int, samples: Sequence[int]) -> None:  # noqa: ARG002
        """Refuse: digests are sent and acknowledged by P4Runtime."""
        raise LearnRefusal(_NOT_HERE)

    def bm_learning_ack_buffer(self, _: int, digest: int, buffer: int) -> None:  # noqa: ARG002
        """Refuse, too."""
        raise LearnRefusal(_NOT_HERE)

    bm_learning_set_timeout = bm_learning_ack_buffer
    bm_learning_set_buffer_size = bm_learning_ack_buffer

    def bm_set_crc16_custom_parameters(self, _: int, name: str, config: HashConfig) -> None:  # noqa: ARG002
        """Refuse: parameters of a CRC are set when a program is loaded."""
        raise HashRefusal(_NOT_HERE)

    bm_set_crc32_custom_parameters = bm_set_crc16_custom_parameters

    def bm_set_toeplitz_hash_key(self, _: int, name: str, key: bytes) -> None:  # noqa: ARG002
        """Refuse: programs with such a hash are refused."""
        raise HashRefusal(_NOT_HERE)
