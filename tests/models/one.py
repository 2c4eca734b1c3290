"""Makes one case of the parity tests: `one.py FOLDER NAME DIGEST`, run by parity.py."""

import json
import sys
import tomllib
from pathlib import Path

import torch
from cases import CASES, Case
from haloflow_models.__main__ import main as haloflow_models
from haloflow_models.toml_text import dumps

ROWS = 2


def make(folder: Path, case: Case, digest: str) -> None:
    """Exports, writes the input and eager's output, compiles, and describes the case."""
    bundle = folder / "bundle"
    if haloflow_models([*export_command(case), "--out", str(bundle)]) != 0:
        raise SystemExit(1)
    size = write_eager(folder, case)
    command = ["compile", "--bundle", str(bundle), "--device", "cpu", "--batch", str(ROWS), *patch(case)]
    code = haloflow_models([*command, "--out", str(bundle / "compiled/cpu.pt2")])
    export = tomllib.loads((bundle / "model.toml").read_text())["export"]
    found = {"rows": ROWS, "channels-in": case.channels_in, "patch": list(case.patch), "output-size": size}
    outcome = {"how": export["how"], "compiled": code == 0, "reason": export.get("reason", "" if code == 0 else "see compile")}
    (folder / "case.toml").write_text(dumps({"digest": digest, **found, **outcome}))


def export_command(case: Case) -> list[str]:
    """The command line that exports the case."""
    take = ["--take", case.take] if case.take else []
    command = ["export", *case.source, "--args", json.dumps(case.args), "--channels-in", str(case.channels_in)]
    return [*command, *patch(case), *take, "--name", case.name]


def patch(case: Case) -> list[str]:
    """The option of the patch."""
    return ["--patch", *map(str, case.patch)]


def write_eager(folder: Path, case: Case) -> list[int]:
    """Writes a random input and what the network gives for it in eager Python; gives the output's size."""
    model = eager(case)
    x = torch.rand((ROWS, case.channels_in, *case.patch), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        output = model(x)
    if isinstance(output, list):
        output = torch.cat(output, dim=1)
    (folder / "input.f32").write_bytes(x.numpy().astype("<f4").tobytes())
    (folder / "eager.f32").write_bytes(output.contiguous().numpy().astype("<f4").tobytes())
    return list(output.shape)


def eager(case: Case) -> torch.nn.Module:
    """The network itself, with the same random weights as in the bundle."""
    from haloflow_models.architectures import BUILT_IN, construct

    option, value = case.source
    target = BUILT_IN[value].module if option == "--model-type" else value
    torch.manual_seed(0)
    return construct(target, case.args).eval()


if __name__ == "__main__":
    make(Path(sys.argv[1]), next(case for case in CASES if case.name == sys.argv[2]), sys.argv[3])
