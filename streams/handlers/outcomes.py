"""What a handler may raise to say how its try ended."""


class Retry(Exception):
    """Call the handler again. It counts as a failed try, and the run is DEAD after its last one.

    `after` is the delay in seconds, from 0 to a day; None leaves it to the usual back-off.
    """

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        if after is not None and not 0 <= after <= 86_400:
            raise ValueError(f"after is {after}: give seconds from 0 to 86400")
        super().__init__(reason or "no reason was given")
        self.after = after


class Reject(Exception):
    """What the handler was given is not acceptable: the run fails with *reason*, and is not tried again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
