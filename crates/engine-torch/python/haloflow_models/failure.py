"""What ends a command: each is printed as one sentence and has its exit code."""


class Failure(Exception):
    """A command that ends early."""

    exit_code = 1


class Usage(Failure):
    """The command line asks for something that has no meaning."""

    exit_code = 2


class Cannot(Failure):
    """The command line is sound and what it asks for cannot be done."""

    exit_code = 3


def first_line(error: BaseException) -> str:
    """The first line of an error's message that says something, or the error's name; no longer than a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if isinstance(error, KeyError) or len(text) < 12:
        text = f"{type(error).__name__}: {text}"
    return text if len(text) <= 300 else text[:297] + "..."
