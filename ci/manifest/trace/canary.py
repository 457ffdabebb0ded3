"""Two planted tests that share one helper: a recording in which one does not own it is worthless."""


def helper() -> int:
    """Be shared."""
    return 1


def first() -> int:
    """Call the helper first."""
    return helper()


def second() -> int:
    """Call it again, in a context of its own."""
    return helper() + 1
