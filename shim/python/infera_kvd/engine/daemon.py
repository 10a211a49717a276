"""The daemon as the connector sees it: look-ups, loads and saves for which trouble is a miss.

Nothing here raises. While the daemon is away the engine computes as if it had no connector; that it went and that it
came back is one line each in the log, once a minute if it happens often.
"""

import queue
import threading
import time

# Keys of one call: half of what a frame may hold.
KEYS_MAX = 2048
# Keys of a look-up's first call. If they are not all there, which is how most look-ups end, the others need no names.
KEYS_FIRST = 16
# Bytes of one call that loads. Each has the whole deadline, so a long load from a slow disk may take as long as it needs
# while it comes forward.
LOAD_BYTES = 64 << 20
# So many losses of the daemon are said as they come, later ones once a minute: one that is slow comes and goes with
# every call.
LOSSES_SAID = 10
QUIET_SECONDS = 60.0
# How long a call waits for a connection that others use, as where there are more threads than connections.
TURN_SECONDS = 1.0


class Daemon:
    """Connections with their namespace knowledge left out: callers name the shard.

    `clients`: of the native kind. Each call has one to itself, so that as many threads as there are clients do not wait for
    one another, and what a client says of its latest call is said of this one.
    """

    def __init__(self, clients, counters, log, where="the default socket", clock=time.monotonic):
        self._clients = list(clients)
        # The one that was used last comes first: what one thread needs is one connection.
        self._free = queue.LifoQueue()
        for client in self._clients:
            self._free.put(client)
        self._counters = counters
        self._log = log
        self._where = where
        self._clock = clock
        self._away = False
        self._is_said = False
        self._losses_said = 0
        self._quiet_until = 0.0
        self._odd_sizes_said = False
        self._mistakes_said = set()
        self._closed = False
        self._noticing = threading.Lock()

    def locate(self, shards, keys):
        """How many of `keys`, from the first on, every one of `shards` has."""
        return len(self.ready(shards, keys))

    def ready(self, shards, keys):
        """What every one of `shards` has of `keys`, from the first on.

        For each such key after how many seconds it and those before it can be loaded, as the daemon estimates: 0 for
        what is in host memory. `keys`: a sequence; only slices of it are taken.
        """
        ready = [0.0] * len(keys)
        for shard in shards:
            leading = self._leading(shard, keys, len(ready))
            ready = [max(pair) for pair in zip(ready, leading, strict=False)]
            if not ready:
                break
        self._counters.add("lookups")
        self._counters.add("lookup_blocks", len(keys))
        self._counters.add("lookup_hit_blocks", len(ready))
        return ready

    def _leading(self, shard, keys, count):
        ready, latest, window = [], 0.0, KEYS_FIRST
        while len(ready) < count:
            part = keys[len(ready) : min(len(ready) + window, count)]
            rows = self._ask("locate", shard.model, shard.compat_key, part, prefix=True) or ()
            for row in rows:
                if not row.present or not self._fits(row.nbytes, shard):
                    return ready
                latest = max(latest, row.load_us / 1e6)
                ready.append(latest)
            if len(rows) < len(part):
                return ready
            window = KEYS_MAX
        return ready

    def present(self, shard, keys):
        """For each of `keys`, whether it is stored; false where that is not known."""
        rows = self._ask("locate", shard.model, shard.compat_key, keys, prefix=False) or ()
        found = [bool(row.present) and self._fits(row.nbytes, shard) for row in rows]
        return found + [False] * (len(keys) - len(found))

    def load(self, shard, keys, targets, goes_on=lambda: True):
        """Copies the values of `keys` into `targets`, a list of buffers each. Which of them failed, as indices.

        Behind a part of which something failed nothing is loaded: a prefix ends at its first gap. `goes_on()`: whether to
        begin another part; what is left counts as failed if not.
        """
        begun = time.monotonic()
        failed = []
        step = max(1, min(KEYS_MAX, LOAD_BYTES // shard.block_bytes))
        for first in range(0, len(keys), step):
            if first > 0 and not goes_on():
                failed = list(range(first, len(keys)))
                break
            part = slice(first, first + step)
            misses = self._ask("load", shard.model, shard.compat_key, keys[part], targets[part])
            if misses is None:
                failed = list(range(first, len(keys)))
            elif any(miss is not None for miss in misses):
                failed = [first + i for i, miss in enumerate(misses) if miss is not None]
                failed.extend(range(first + len(misses), len(keys)))
            if failed:
                break
        loaded = len(keys) - len(failed)
        self._counters.add("loaded_blocks", loaded)
        self._counters.add("loaded_bytes", loaded * shard.block_bytes)
        self._counters.add("load_failed_blocks", len(failed))
        self._counters.add("load_microseconds", int((time.monotonic() - begun) * 1e6))
        return failed

    def fetch(self, shard, keys):
        """Views of the leading `keys` that are there: their bytes stay in place until the views go."""
        views = []
        for item in self._ask("fetch", shard.model, shard.compat_key, keys, prefix=True) or ():
            if not item or not self._fits(item.nbytes, shard):
                break
            views.append(item)
        return views

    def save_missing(self, shard, items, buffers_of):
        """Stores those of a batch of `saver.Item` that are not there. `buffers_of(block_id)`: where a block's bytes are."""
        present = self.present(shard, [item.key for item in items])
        missing = [item for item, is_there in zip(items, present, strict=True) if not is_there]
        self._counters.add("save_present_blocks", len(items) - len(missing))
        if missing:
            self.save(
                shard,
                [item.key for item in missing],
                [buffers_of(item.block_id) for item in missing],
                missing[0].keep,
                [item.lineage for item in missing],
            )

    def save(self, shard, keys, sources, keep, lineages):
        """Stores what `sources` hold, a list of buffers each, under `keys`. For each of them, whether it is stored."""
        refusals = self._ask(
            "save",
            shard.model,
            shard.compat_key,
            keys,
            sources,
            retention=keep.retention,
            ttl=keep.ttl_seconds,
            lineages=lineages,
        )
        if refusals is None:
            self._counters.add("save_failed_blocks", len(keys))
            return [False] * len(keys)
        stored = sum(refusal is None for refusal in refusals)
        self._counters.add("saved_blocks", stored)
        self._counters.add("saved_bytes", stored * shard.block_bytes)
        self._counters.add("save_refused_blocks", len(refusals) - stored)
        return [refusal is None for refusal in refusals]

    def clear(self, shard):
        """Forgets everything of a namespace, whoever stored it. Whether the daemon did."""
        return self._ask("clear", model=shard.model, compat_key=shard.compat_key) is not None

    def close(self):
        """Ends the connections. A call that is under way goes on; after it there is nothing to be had any more."""
        self._closed = True
        for client in self._clients:
            try:
                client.close()
            except Exception as trouble:  # noqa: BLE001 - nothing of ours may end the engine
                self._log.debug("infera-kvd: closing the connection: %s", trouble)

    def _ask(self, call, *arguments, **named):
        """The answer, or `None` if there is none to be had."""
        try:
            client = self._free.get(timeout=TURN_SECONDS)
        except queue.Empty:
            self._notice("every connection is waiting for it")
            return None
        try:
            if self._closed:
                return None
            answer = getattr(client, call)(*arguments, **named)
            trouble = client.trouble
        except Exception as error:  # noqa: BLE001 - nothing of ours may end the engine
            # What the daemon cannot do is an error with a code; all others are about what it was to be asked.
            if not hasattr(error, "code"):
                self._say_mistake(call, error)
                return None
            answer, trouble = None, str(error)
        finally:
            self._free.put(client)
        self._notice(trouble)
        return answer

    def _say_mistake(self, call, error):
        """Once for each call and kind: where one was made, more of it follow."""
        if (call, type(error)) not in self._mistakes_said:
            self._mistakes_said.add((call, type(error)))
            self._log.error(
                "infera-kvd: %s was asked for in a way that cannot be (%s: %s): computing instead; said once",
                call,
                type(error).__name__,
                error,
                exc_info=error,
            )

    def _notice(self, trouble):
        with self._noticing:
            if trouble and not self._away:
                self._counters.add("daemon_losses")
            if trouble and not self._is_said and self._may_say():
                self._is_said = True
                self._log.warning(
                    "infera-kvd at %s does not answer (%s): computing without it until it is back", self._where, trouble
                )
            elif self._is_said and not trouble:
                self._is_said = False
                self._log.info("infera-kvd at %s answers again", self._where)
            self._away = bool(trouble)

    def _may_say(self):
        now = self._clock()
        if self._losses_said >= LOSSES_SAID and now < self._quiet_until:
            return False
        self._losses_said += 1
        self._quiet_until = now + QUIET_SECONDS
        return True

    def _fits(self, nbytes, shard):
        if shard.block_bytes in (None, nbytes):
            return True
        if not self._odd_sizes_said:
            self._odd_sizes_said = True
            self._log.warning(
                "infera-kvd holds a block of %d bytes where this engine has %d (model %s, compat_key %s): not used",
                nbytes,
                shard.block_bytes,
                shard.model,
                shard.compat_key,
            )
        return False
