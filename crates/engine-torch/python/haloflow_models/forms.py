"""The two forms of a bundle: a TorchScript module and an exported program."""

import contextlib
import io
import json
import zipfile
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from .failure import Cannot, first_line

# A form whose output differs by more, relative to the largest value, is not the same network.
TOLERANCE = 1e-4
# Rows of the batch that a form is made with: not 1, which tracers take for a constant.
ROWS = 2
# Rows of the batches that a form is compared on.
COMPARED_ROWS = (3, 1)
# The most rows and the longest side of a dynamic program.
MOST_ROWS = 4096
LONGEST_SIDE = 2048
# What may vary in a program, widest first.
FREEDOMS = ("batch and patch", "batch", "nothing")
# The file inside program.pt2 that says for what it was made.
MADE_FOR = "haloflow.json"


@dataclass(frozen=True)
class Probe:
    """Random inputs, and what eager gives for them."""

    example: Tensor
    inputs: list[Tensor]
    outputs: list[Tensor]

    def difference(self, run, inputs: slice = slice(None)) -> float:
        """The largest absolute difference of `run` from eager, relative to eager's largest value."""
        worst = 0.0
        for x, eager in zip(self.inputs[inputs], self.outputs[inputs]):
            scale = max(eager.abs().max().item(), 1e-30)
            worst = max(worst, (run(x) - eager).abs().max().item() / scale)
        return worst


def probe(model: nn.Module, channels: int, patch: tuple[int, int, int], seed: int) -> Probe:
    """Draws an example of `ROWS` rows and other inputs, and runs the model on those."""
    random = torch.Generator().manual_seed(seed)
    draw = lambda rows: torch.rand((rows, channels, *patch), generator=random)
    example, inputs = draw(ROWS), [draw(rows) for rows in COMPARED_ROWS]
    return Probe(example, inputs, [model(x) for x in inputs])


@dataclass(frozen=True)
class Script:
    """A TorchScript module as the bytes of its file, how it was made, and how far it is from eager."""

    data: bytes
    how: str
    difference: float
    refused: str = ""


def script(model: nn.Module, probe: Probe) -> Script:
    """Makes the TorchScript module: by scripting or, where that fails or differs, by tracing."""
    makers = {
        "script": lambda: torch.jit.script(model),
        "trace": lambda: torch.jit.trace(model, probe.example, check_trace=False),
    }
    refused = {}
    for how, make in makers.items():
        try:
            data = script_bytes(make())
            difference = probe.difference(torch.jit.load(io.BytesIO(data)))
        except Exception as error:
            refused[how] = first_line(error)
            continue
        if difference <= TOLERANCE:
            return Script(data, how, difference, refused.get("script", ""))
        refused[how] = f"its output differs from eager's by {difference:.1e}"
    raise Cannot("the model has no TorchScript form: " + "; ".join(f"{how}: {why}" for how, why in refused.items()))


def script_bytes(module: torch.jit.ScriptModule) -> bytes:
    """The module's file without the debug records, which hold paths of this machine. Equal modules give equal bytes."""
    whole, kept = io.BytesIO(), io.BytesIO()
    torch.jit.save(module, whole)
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(kept, "w") as target:
        for entry in source.namelist():
            if not entry.endswith(".debug_pkl"):
                target.writestr(zipfile.ZipInfo(entry), source.read(entry))
    return kept.getvalue()


@dataclass(frozen=True)
class Program:
    """An exported program as the bytes of its file, or why there is none, or why it is not free."""

    data: bytes | None
    difference: float | None
    reason: str
    free: str = "nothing"


def program(model: nn.Module, probe: Probe, divisible_by: tuple[int, int, int], recipe: dict) -> Program:
    """Exports the model with as much free to vary as it allows: the batch and the patch, the batch, or nothing.

    `recipe` is kept in the file: what makes the model again for a shape that the program does not cover.
    """
    reason = ""
    for freedom in FREEDOMS:
        shapes = dynamic_shapes(freedom, probe.example, divisible_by)
        if shapes is None and freedom != "nothing":
            continue
        try:
            exported = export(model, probe.example, shapes)
            data = program_bytes(exported, recipe | made_for(probe.example, freedom))
            difference = probe_program(data, probe, freedom)
        except Exception as error:
            reason = reason or first_line(error)
            continue
        if difference <= TOLERANCE:
            return Program(data, difference, f"static: {reason}" if freedom == "nothing" else "", freedom)
        reason = reason or f"its output differs from eager's by {difference:.1e}"
    return Program(None, None, reason)


def export(model: nn.Module, example: Tensor, shapes: tuple | None) -> ExportedProgram:
    """`torch.export.export`, without the graphs that it prints where it fails: the error says enough."""
    unread = io.StringIO()
    with contextlib.redirect_stdout(unread), contextlib.redirect_stderr(unread):
        return torch.export.export(model, (example,), dynamic_shapes=shapes)


def dynamic_shapes(freedom: str, example: Tensor, divisible_by: tuple[int, int, int]) -> tuple | None:
    """What `torch.export` calls dynamic shapes, or None where there is nothing to vary."""
    if freedom == "nothing":
        return None
    axes = {0: Dim("batch", min=1, max=MOST_ROWS)}
    if freedom == "batch":
        return (axes,)
    for axis, (name, step) in enumerate(zip("zyx", divisible_by), start=2):
        if example.shape[axis] // step >= 2:
            steps = Dim(f"{name}_steps", min=1, max=LONGEST_SIDE // step)
            axes[axis] = step * steps if step > 1 else steps
    return (axes,) if len(axes) > 1 else None


def made_for(example: Tensor, freedom: str) -> dict:
    """The shape that a program was made for, and what may vary."""
    return {"free": freedom, "rows": example.shape[0], "channels": example.shape[1], "patch": list(example.shape[2:])}


def program_bytes(exported: ExportedProgram, note: dict) -> bytes:
    """The program's file, without the paths of this machine, and with a note of what it was made for."""
    for graph_module in exported.graph_module.modules():
        for node in getattr(graph_module, "graph", torch.fx.Graph()).nodes:
            node.meta.pop("stack_trace", None)
    file = io.BytesIO()
    torch.export.save(exported, file, extra_files={MADE_FOR: json.dumps(note)})
    return file.getvalue()


def probe_program(data: bytes, probe: Probe, freedom: str) -> float:
    """How far the program, read back, is from eager; a static one is compared on its own number of rows."""
    run = torch.export.load(io.BytesIO(data)).module()
    if freedom != "nothing":
        return probe.difference(run)
    eager = probe.outputs[0][:ROWS]
    given = run(probe.inputs[0][:ROWS])
    return (given - eager).abs().max().item() / max(eager.abs().max().item(), 1e-30)
