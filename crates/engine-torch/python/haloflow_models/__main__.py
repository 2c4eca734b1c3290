"""Runs `export` or `compile`; what goes wrong is one sentence on standard error."""

import logging
import os
import sys
import threading
import warnings


def main(arguments: list[str]) -> int:
    """The exit code: 0, 2 for a command line without meaning, 3 for what cannot be done."""
    # Torch warns of what is no concern of the user's; a reason that matters is in model.toml.
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    from . import options
    from .failure import Failure

    try:
        request = options.parse(arguments)
        run(request)
    except Failure as failure:
        print(" ".join(str(failure).split()), file=sys.stderr)
        return failure.exit_code
    except OSError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 3
    return 0


def run(request) -> None:
    """Runs the command. Torch is imported only now, so that a wrong command line is refused at once."""
    if request.command == "export":
        from . import export

        export.run(request)
    else:
        from . import package

        package.run(request)


def end_with_caller() -> None:
    """Ends this process when the one that started it is gone: it holds the other end of standard input."""

    def wait() -> None:
        # Not through `sys.stdin`, whose lock would be held when Python ends.
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    if "HALOFLOW_ENDS_WITH_STDIN" in os.environ:
        end_with_caller()
    sys.exit(main(sys.argv[1:]))
