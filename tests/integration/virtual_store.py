"""Hosts of a virtual fabric that serve, read and write named content, whose switches and controller may start again."""

from __future__ import annotations

from finsy.proto import p4r

from controller.apps.demo.store import world
from controller.apps.demo.store.world import US, Client, Server
from controller.network.content.settings import RecordedSettings
from controller.network.p4runtime.session import ELECTION_ID

__all__ = ["MS", "US", "Client", "Server", "World"]

MS = 1_000_000


class World(world.World):
    """A world in which parts lose their state."""

    def connect(self, switch: str) -> None:
        """Adopt a switch in its current state, as the controller does after a start of either."""
        self.controller.reconnect(switch)

    def restart(self, switch: str) -> None:
        """Have a switch forget its tables and all that it holds; nothing is forwarded until `connect`."""
        self.controller.lose(switch)
        self.fabric.p4runtime(switch).set_pipeline(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.topology.switch[switch].node_id,
                election_id=p4r.Uint128(low=ELECTION_ID),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=self._schema.get_pipeline_config(),
            )
        )

    def forget(self) -> None:
        """Have the controller start again: it knows no more than its settings, until `connect`."""
        for switch in self.sessions:
            self.controller.lose(switch)
        self.controller = self._control()

    def record(self, wanted: RecordedSettings) -> None:
        """Have a name recorded at once."""
        self.stores.record(wanted)
        self.controller.changed()
