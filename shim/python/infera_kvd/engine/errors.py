"""Why a connector stays out of an engine."""


class Refused(ValueError):
    """This engine, model or cache cannot be served; the message names what and says why."""


class OptionError(ValueError):
    """Mistakes in options, all of them in one message."""


def say_unused(log, error):
    """One line on why an engine runs without us; with the place where it happened if nobody expected it."""
    if isinstance(error, (Refused, OptionError)):
        log.error("infera-kvd is not used: %s", error)
    else:
        log.error("infera-kvd is not used: %s: %s", type(error).__name__, error, exc_info=error)
