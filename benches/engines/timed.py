"""The connector with a clock around everything that vLLM calls: what a step costs in which it has nothing to do.

Used through `kv_connector_module_path`. At the end it writes the microseconds of each idle step, one a line, to the file
that KVD_TIMED_FILE names. The clock's own cost is in them. Scheduler and worker must be in one process.
"""

import functools
import os
import pathlib
import time

from infera_kvd.vllm.connector import InferaKvdConnector
from infera_kvd.vllm.plan import Step

# What vLLM calls in the course of a step, as far as the connector does something there, and what a request causes.
EACH_STEP = (
    "build_connector_meta", "handle_preemptions", "start_load_kv", "wait_for_save", "get_finished",
    "get_block_ids_with_load_errors", "get_kv_connector_stats", "take_events",
)
REQUESTS = ("get_num_new_matched_tokens", "update_state_after_alloc", "request_finished_all_groups")


class _Clock:
    """One for both halves: a step begins with its plan."""

    def __init__(self):
        self.spent = 0
        self.is_idle = False
        self.idle_steps = []

    def next_step(self, plan):
        """Ends a step and begins another."""
        if self.is_idle:
            self.idle_steps.append(self.spent / 1000)
        self.spent = 0
        self.is_idle = plan == Step()


CLOCK = _Clock()


def _timed(method, has_request=False):
    @functools.wraps(method)
    def wrapped(*arguments, **named):
        begun = time.perf_counter_ns()
        answer = method(*arguments, **named)
        CLOCK.spent += time.perf_counter_ns() - begun
        if has_request:
            CLOCK.is_idle = False
        return answer

    return wrapped


class TimedConnector(InferaKvdConnector):
    """The connector, timed."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config, role, kv_cache_config)
        for name in EACH_STEP:
            setattr(self, name, _timed(getattr(self, name)))
        for name in REQUESTS:
            setattr(self, name, _timed(getattr(self, name), has_request=True))
        build = self.build_connector_meta

        def begin(scheduler_output):
            before = CLOCK.spent
            metadata = build(scheduler_output)
            took, CLOCK.spent = CLOCK.spent - before, before
            CLOCK.next_step(metadata.step)
            CLOCK.spent = took
            return metadata

        self.build_connector_meta = begin

    def shutdown(self):
        """Writes what was measured."""
        super().shutdown()
        pathlib.Path(os.environ["KVD_TIMED_FILE"]).write_text("".join(f"{spent}\n" for spent in CLOCK.idle_steps))
