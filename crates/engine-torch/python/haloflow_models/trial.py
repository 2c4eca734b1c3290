"""Runs a package once, for whoever compiles without `haloflow`, which runs it with what will run it later: `haloflow model trial`.

`python -m haloflow_models.trial PACKAGE --device D --kind K --rows N --channels C --patch Z Y X --input FILE --output FILE`; the
files hold the batch and what came of it, in the kind asked for, C order.
"""

import argparse
import sys

import torch

from .failure import first_line
from .package import KINDS, joined


def main(arguments: list[str]) -> int:
    """The exit code; what goes wrong is the last line on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    for name, options in {
        "device": {},
        "kind": {"choices": KINDS},
        "rows": {"type": int},
        "channels": {"type": int},
        "patch": {"type": int, "nargs": 3},
        "input": {},
        "output": {},
    }.items():
        parser.add_argument(f"--{name}", required=True, **options)
    asked = parser.parse_args(arguments)
    torch.backends.cudnn.allow_tf32 = False
    index = -1 if asked.device == "cpu" else int(asked.device.partition(":")[2])
    try:
        with open(asked.input, "rb") as file:
            x = torch.frombuffer(bytearray(file.read()), dtype=KINDS[asked.kind])
        x = x.reshape(asked.rows, asked.channels, *asked.patch).to(asked.device)
        with torch.no_grad():
            model = torch._inductor.aoti_load_package(asked.package, run_single_threaded=True, device_index=index)
            y = joined(model(x)).to("cpu", KINDS[asked.kind]).contiguous()
        with open(asked.output, "wb") as file:
            file.write(y.flatten().view(torch.uint8).numpy().tobytes())
    except Exception as error:
        print(first_line(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
