"""Modules and classes that are of no use as encoder, partitioner or handler."""


class NeedsArguments:
    def __init__(self, needed: object) -> None:
        pass


class Raises:
    def __init__(self) -> None:
        raise ZeroDivisionError("when it is made")
