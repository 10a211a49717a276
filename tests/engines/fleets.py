"""Two hosts, an engine on each, and a router in front."""

from blocks import BLOCK_TOKENS
from hosts import Host
from lives import wait_until
from routers import Router
from workers import Etcd

KNOWN_SECONDS = 60


class Fleet:
    """Everything that a router needs, and one that looks at caches."""

    def __init__(self, options, cleanup, report):
        self._options, self._cleanup = options, cleanup
        self._etcd = Etcd(options.folder)
        cleanup.callback(self._etcd.kill)
        self.hosts = [Host(name, options, cleanup, report, self._etcd) for name in ("host-a", "host-b")]
        for worker in [host.start_engine() for host in self.hosts]:
            worker.wait_until_registered()
        self.router = self.start_router("router")

    def start_router(self, name, policy="kv-aware"):
        """Another router, which knows all workers."""
        options = self._options
        router = Router(name, options.folder, options.daemon.parent, self._etcd, options.model, policy)
        self._cleanup.callback(router.kill)
        return router.wait_until_ready(len(self.hosts))

    def wait_for(self, conversation, host, tier, tokens):
        """Until the next turn would go to a host's worker for what it has in a tier; the router's answer."""
        found = {}

        def is_there():
            found.update(self.router.explain(conversation.messages))
            worker, target = next(iter(found["targets"].items()))
            return worker == host.worker.id and target["terms"][f"{tier}_tokens"] >= tokens - BLOCK_TOKENS

        try:
            wait_until(is_there, f"{conversation.name}: {tokens} tokens are known in {tier} of {host.id}", KNOWN_SECONDS)
        except TimeoutError:
            print(f"the router says: {found}", flush=True)
            raise
        return found

    def host_of(self):
        """The hosts' names by their workers."""
        return {host.worker.id: host.id for host in self.hosts}

    def other(self, host):
        """The other host."""
        return self.hosts[host is self.hosts[0]]
