"""The desired stores of all switches of a fabric, by settings and by recorders of names."""

from __future__ import annotations

from collections.abc import Mapping

from controller.common.errors import ControllerError
from controller.network.content.name_routes import NameRoutes
from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.content.switch_store import Generations, RecordedName, SwitchStore
from controller.network.tables.entities import EntityKey
from controller.network.tables.store import ANY_SWITCH, Writer
from dataplane.store.dialogues import segments_of
from dataplane.store.errors import StoreError
from dataplane.store.names import Prefix, Segment, digest
from dataplane.topology.values import Topology


class Stores:
    """Desired content of each switch: copies for the producers attached to it, and the names that it records."""

    def __init__(self, topology: Topology, settings: StoreSettings) -> None:
        """Apply the settings; raise ControllerError if they do not fit the topology."""
        self.topology, self.settings = topology, settings
        producers: dict[str, dict[int, int]] = {node.name: {} for node in topology.switches}
        for host in settings.producers:
            address = int(topology.host[self._host(host)].ipv4)
            edge = topology.attachment[host]
            if settings.on_the_way:
                for others in producers.values():
                    others[address] = ANY_SWITCH
            producers[edge.node][address] = edge.port
        generations = Generations()
        self.routes = NameRoutes(settings.announced_for_ns)
        self._never: set[int] = set()
        self._stores = {
            switch: SwitchStore(producers_there, settings, generations, self.routes, self._never)
            for switch, producers_there in producers.items()
        }
        for wanted in settings.recorded:
            self.record(wanted)

    def __getitem__(self, switch: str) -> SwitchStore:
        return self._stores[switch]

    def switch_of(self, wanted: RecordedSettings) -> str:
        """Return the switch that records a name: its server's."""
        return self.topology.attachment[self._host(wanted.server)].node

    def record(self, wanted: RecordedSettings) -> None:
        """Record a name at its server's switch; raise ControllerError that names it."""
        switch = self.switch_of(wanted)
        writers = frozenset(self._writer(switch, host) for host in wanted.writers)
        try:
            number = digest(wanted.name)
        except StoreError as error:
            raise ControllerError(str(error)) from error
        self._never.add(number)
        try:
            self._stores[switch].record(RecordedName(number, segments_of(wanted.bytes), writers, wanted.forward))
        except ControllerError as error:
            raise ControllerError(f"{wanted.name}: {switch}: {error}") from error

    def announced(self, switch: str, prefix: Prefix, producer: int, now_ns: int) -> None:
        """Take a producer's announcement; those of other hosts, or elsewhere than where they are, are ignored."""
        hosts = (self.topology.host[host] for host in self.settings.producers)
        host = next((host for host in hosts if int(host.ipv4) == producer), None)
        if host is not None and self.topology.attachment[host.name].node == switch:
            self.routes.announced(prefix, producer, now_ns)

    def forget(self, wanted: RecordedSettings) -> None:
        """Stop recording a name."""
        self._stores[self.switch_of(wanted)].forget(digest(wanted.name))

    def _writer(self, switch: str, host: str) -> Writer:
        edge = self.topology.attachment[self._host(host)]
        return Writer(int(self.topology.host[host].ipv4), edge.port if edge.node == switch else 0)

    def _host(self, name: str) -> str:
        if name not in self.topology.host:
            raise ControllerError(f"store: topology {self.topology.name} has no host {name!r}")
        return name


def by_segment(packets: Mapping[EntityKey, int]) -> dict[Segment, int]:
    """Return a switch's counts by segment."""
    counts = {}
    for key, count in packets.items():
        match = dict(key.match)
        name, number = match["name"], match["segment"]
        if isinstance(name, int) and isinstance(number, int):
            counts[Segment(name, number)] = count
    return counts
