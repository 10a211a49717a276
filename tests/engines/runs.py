"""A run: one daemon's socket, the engines on it, and what they should answer."""

import re

import infera_kvd
import traps
from blocks import block_keys, tokens_of
from lives import Daemon, Life, wait_until

# A daemon that is alive answers within this, however busy the machine is: what is checked here is not how fast it is.
PATIENCE_SECONDS = 20
NAMESPACE = re.compile(r"infera-kvd: model (\S+), compat_key (\S+), (\d+) bytes a block")


class Run:
    """All lives over one socket, in a folder of its own.

    `baseline`: prompt to the answer of an engine without a connector; filled by whoever runs one.
    """

    def __init__(self, options, cleanup, report, *, name="run", baseline=None, arena="256M", flags=()):
        self.options = options
        self.cleanup = cleanup
        self.report = report
        self.baseline = {} if baseline is None else baseline
        self.folder = options.folder / name
        self.folder.mkdir()
        self._trigger = self.folder / "trigger"
        self._arena, self._flags = arena, flags
        self.daemon = self.start_daemon()
        self.socket = str(self.daemon.socket)
        self.client = infera_kvd.Client(self.socket, client_id="e2e", deadline=PATIENCE_SECONDS)
        self.namespace = None
        self.wait_for_daemon()

    def start_daemon(self):
        """A new incarnation on the same socket."""
        self.daemon = Daemon(self.options.daemon, self.folder, self._arena, self._flags)
        self.cleanup.callback(self.daemon.kill)
        return self.daemon

    def kill_daemon_at(self, moment, question):
        """Asks, with the daemon killed at a moment meanwhile, if the engine has `traps`."""
        self._trigger.write_text(moment)
        question()
        self.daemon.wait_for_death()

    def traps(self):
        """What an engine with traps has to be told."""
        return traps.environment(self._trigger, self.daemon.pid_file)

    def wait_for_daemon(self):
        """Until the daemon answers."""
        wait_until(self._answers, "the daemon answers")

    def _answers(self):
        try:
            self.client.stats()
        except infera_kvd.KvdError:
            return False
        return True

    def transfer(self, *, connector="InferaKvdConnector", module="infera_kvd.vllm", **extra):
        """vLLM's `kv_transfer_config` for a connector on this socket; `extra` goes into the connector's options."""
        return {
            "kv_connector": connector,
            "kv_connector_module_path": module,
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {"socket": self.socket, "deadline_seconds": PATIENCE_SECONDS, **extra},
        }

    def life(self, name, *, transfer=..., environment=None, settings=None, model=None, wrapper=()):
        """A new engine process; with `transfer=None` one that has no connector."""
        transfer = self.transfer() if transfer is ... else transfer
        life = Life(name, self.folder, model or self.options.model, transfer, environment, settings, wrapper)
        self.cleanup.callback(life.kill)
        return life

    def stats(self):
        """The daemon's counters."""
        return self.client.stats()

    def same(self, what, answer, prompt):
        """Tokens and log-probabilities are the baseline's, and the request ended as it should."""
        expected = self.baseline[prompt]
        for part in ("tokens", "logprobs", "finish"):
            self.report.check(f"{what}: {part} equal to the baseline", answer[part], expected[part])

    def remember_namespace(self, log):
        """Takes the namespace from an engine's log; bytes of a block."""
        model, compat_key, block_bytes = NAMESPACE.search(log).groups()
        self.namespace = (model, compat_key)
        return int(block_bytes)

    def stored_keys(self, prompts):
        """The keys of every block that these requests compute: the KV of the last token was never made."""
        return {key for p in prompts for key in block_keys(tokens_of(p) + self.baseline[p]["tokens"][:-1])}

    def wait_for_keys(self, prompts, what):
        """Saving is done in the background."""
        keys = sorted(self.stored_keys(prompts))
        wait_until(lambda: all(row.present for row in self.client.locate(*self.namespace, keys, prefix=False)), what)
