"""How fast this engine computes prompts, measured by its own steps."""

import collections
import statistics

# A step with fewer prompt tokens says more about what a step costs than about what a token does.
TOKENS_MIN = 64
# A request with fewer tokens in a step is taken for one that decodes.
PROMPT_TOKENS_MIN = 16
# The median of so many steps of a size holds: one that stalled changes nothing.
STEPS = 9
# After so many loads in a row that no step was measured between, the figure is doubted; after twice as many again.
LOADS_TRUSTED = 16
DOUBTS_MAX = 3
# More steps than any engine runs at a time.
IN_FLIGHT_MAX = 256


def prompt_tokens(scheduled_tokens, total):
    """Tokens of a step that belong to prompts, 0 if the step is no measure of them.

    `scheduled_tokens`: tokens of each request in the step. `total`: their sum.
    """
    if total < TOKENS_MIN:
        return 0
    tokens = sum(count for count in scheduled_tokens if count >= PROMPT_TOKENS_MIN)
    return tokens if tokens >= TOKENS_MIN and 2 * tokens >= total else 0


class Speed:
    """Seconds for each prompt token, by the size of the step.

    A step's time is from its plan to its outcome, or from the outcome before it if that came later: then it was
    waiting for its turn. The time between an outcome and the next plan counts for nobody, so pauses do not matter.
    """

    def __init__(self):
        self._planned = collections.deque(maxlen=IN_FLIGHT_MAX)
        self._outcome_at = 0.0
        self._steps = {}
        self._loads = 0

    def planned(self, tokens, now):
        """A step with so many prompt tokens (see `prompt_tokens`) is about to run."""
        self._planned.append((tokens, now))

    def ended(self, now):
        """The outcome of the oldest step that runs."""
        if not self._planned:
            return
        tokens, planned_at = self._planned.popleft()
        took = now - max(planned_at, self._outcome_at)
        self._outcome_at = now
        if tokens and took > 0:
            self._measured(tokens, took)

    def loaded(self):
        """Something was loaded although that was not for nothing."""
        self._loads += 1

    def seconds(self, tokens):
        """How long so many tokens of a prompt take, `None` as long as that is not known.

        A figure that nothing has confirmed for many loads is taken for too slow: sooner or later a prompt is computed
        that could have been loaded, and measured. Never by more than three doublings.
        """
        if not self._steps:
            return None
        size = tokens.bit_length()
        nearest = min(self._steps, key=lambda known: abs(known - size))
        doubts = min(self._loads // LOADS_TRUSTED, DOUBTS_MAX)
        return tokens * statistics.median(self._steps[nearest]) / 2**doubts

    def _measured(self, tokens, took):
        if self._loads >= LOADS_TRUSTED:
            self._steps.clear()
        self._loads = 0
        steps = self._steps.setdefault(tokens.bit_length(), collections.deque(maxlen=STEPS))
        steps.append(took / tokens)
