"""Why a connector stays out of an engine."""


class Refused(ValueError):
    """This engine, model or cache cannot be served; the message names what and says why."""


class OptionError(ValueError):
    """Mistakes in options, all of them in one message."""
