"""Writes a small network in two forms into the folder that is named: a module, and packages compiled for this CPU.

`python make_packages.py FOLDER`, with torch 2.11. The tests call it once and keep what it made in the user's cache.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

PATCH = (6, 7, 8)


class TwoHeads(nn.Module):
    """A list of two outputs of one channel each."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Conv3d(1, 4, kernel_size=3, padding=1)
        self.heads = nn.ModuleList(nn.Conv3d(4, 1, kernel_size=1) for _ in range(2))

    def forward(self, x: Tensor) -> list[Tensor]:
        features = torch.relu(self.encoder(x))
        return [head(features) for head in self.heads]


class Identity(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 1.0


def main(folder: Path) -> None:
    torch.manual_seed(0)
    model = TwoHeads().eval()
    x = torch.zeros(2, 1, *PATCH)
    torch.jit.trace(model, x, strict=False).save(folder / "module.ts")
    free = ({0: Dim("batch", min=1, max=64)},)
    for name, network, dynamic_shapes in [("static", model, None), ("dynamic", model, free), ("identity", Identity(), free)]:
        program = torch.export.export(network, (x,), dynamic_shapes=dynamic_shapes)
        # One row is fewer than the compiler takes a free number of rows for.
        options = {"aot_inductor.check_lowerbound": False}
        package = str(folder / f"{name}.pt2")
        torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=options)


with torch.no_grad():
    main(Path(sys.argv[1]))
