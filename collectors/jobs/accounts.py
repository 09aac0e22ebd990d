"""Accounts of all jobs for which switches report items, and the names given to them; bounded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address

from collectors.counters import Count, Counters
from collectors.jobs.account import JobAccount
from collectors.settings import JobWatchSettings
from collectors.values import JobKey, JobNote, JobState
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import Topology
from dataplane.wire.completion import Completion


class JobAccounts:
    """Takes reports of complete items; when full, evicts the job unheard for longest."""

    def __init__(self, topology: Topology, settings: JobWatchSettings, counters: Counters) -> None:
        self._settings, self._counters = settings, counters
        self._switches = {node.node_id: node.name for node in topology.switches}
        self._names: dict[IPv4Address | IPv6Address, str] = {
            switch_ipv4(node.node_id): node.name for node in topology.switches
        }
        self._names.update({address: host.name for address, host in topology.host_by_address.items()})
        self._accounts: OrderedDict[JobKey, JobAccount] = OrderedDict()
        self._notes: dict[int, JobNote] = {}

    def add(self, node_id: int, completion: Completion, child: IPv4Address | IPv6Address, now_ns: int) -> None:
        """Take a switch's report of an item whose last contribution came from an address."""
        self._counters[Count.ITEMS_REPORTED] += 1
        switch = self._switches.get(node_id)
        if switch is None:
            self._counters[Count.UNKNOWN_NODE] += 1
            return
        key = JobKey(completion.job, switch)
        account = self._accounts.get(key)
        if account is None or self._is_old(account, now_ns):
            account = self._accounts[key] = JobAccount(key, self._settings)
            if len(self._accounts) > self._settings.max_jobs:
                self._accounts.popitem(last=False)
                self._counters[Count.JOBS_FORGOTTEN] += 1
        self._accounts.move_to_end(key)
        account.add(completion, self._names.get(child) or str(child), now_ns)

    def note(self, notes: Mapping[int, JobNote]) -> None:
        """Take the names of all jobs, by number, from their operator; others have ended, and keep their names."""
        self._notes = dict(notes)

    def states(self, now_ns: int) -> dict[JobKey, JobState]:
        """Return the jobs with a recently reported item, by number and switch."""
        for key in [key for key, account in self._accounts.items() if self._is_old(account, now_ns)]:
            del self._accounts[key]
        for key, account in self._accounts.items():
            if key.job in self._notes:
                account.note(self._notes[key.job])
        keys = sorted(self._accounts, key=lambda key: (key.job, key.switch))
        return {key: self._accounts[key].state(now_ns) for key in keys}

    def _is_old(self, account: JobAccount, now_ns: int) -> bool:
        return now_ns - account.newest_ns > self._settings.forget_after_ns
