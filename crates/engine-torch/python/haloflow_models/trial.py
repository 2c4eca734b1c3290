"""Runs a package once: `python -m haloflow_models.trial PACKAGE DEVICE INPUT OUTPUT`, tensors in files of `torch.save`."""

import sys

import torch

from .failure import first_line


def main(package: str, device: str, given: str, result: str) -> int:
    """The exit code; what goes wrong is the last line on standard error."""
    torch.backends.cudnn.allow_tf32 = False
    index = -1 if device == "cpu" else int(device.partition(":")[2])
    try:
        x = torch.load(given, weights_only=True).to(device)
        with torch.no_grad():
            model = torch._inductor.aoti_load_package(package, run_single_threaded=True, device_index=index)
            torch.save(joined(model(x)).float().cpu(), result)
    except Exception as error:
        print(first_line(error), file=sys.stderr)
        return 1
    return 0


def joined(output) -> torch.Tensor:
    """One tensor of an output that may be several."""
    if isinstance(output, dict):
        output = list(output.values())
    return output if isinstance(output, torch.Tensor) else torch.cat(list(output), dim=1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
