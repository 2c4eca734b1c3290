"""The command `export`: from a Python class to a bundle."""

import io
from argparse import Namespace

import torch
from torch import nn

from . import bundle, forms, outputs, sides
from .failure import Cannot, first_line
from .forms import Probe, Program, Script
from .source import Source, make


def run(request: Namespace) -> None:
    """Writes the bundle that the command line asks for, and says what it holds."""
    bundle.check_free(request.out, request.overwrite)
    source = make(request)
    with torch.no_grad():
        model = with_one_output(source.model, request)
        steps = request.divisible_by or source.habits.divisible_by
        steps = steps or sides.divisible_by(model, request.channels_in, request.patch)
        check_patch(request.patch, steps)
        probe = forms.probe(model, request.channels_in, request.patch, request.seed)
        script = forms.script(model, probe)
        program = forms.program(model, probe, steps, recipe(source, request))
        if not free_patch(model, probe, script, steps, request.patch):
            steps = request.patch
            source.notes.append("a trace that takes this patch only")
    files = {bundle.SCRIPT: script.data}
    if program.data is not None:
        files[bundle.PROGRAM] = program.data
    description = describe(request, source, probe, steps) | {"export": account(request, script, program)}
    bundle.write(request.out, description, files, request.overwrite)
    report(request, script, program)


def with_one_output(model: nn.Module, request: Namespace) -> nn.Module:
    """The model, run once to see that it takes the patch and what it gives, as a module that gives one tensor."""
    shape = (1, request.channels_in, *request.patch)
    try:
        output = model(torch.zeros(shape))
    except Exception as error:
        raise Cannot(f"the model does not run on a tensor of the shape {list(shape)}: {first_line(error)}") from error
    return outputs.one_tensor(model, output, request.take).eval()


def check_patch(patch: tuple, steps: tuple) -> None:
    """Refuses a patch that the model's poolings do not divide."""
    if any(side % step for side, step in zip(patch, steps)):
        raise Cannot(f"the patch {list(patch)} is not divisible by {list(steps)}")


def free_patch(model: nn.Module, probe: Probe, script: Script, steps: tuple, patch: tuple) -> bool:
    """Whether the TorchScript module takes every patch that the model takes; a scripted one does."""
    if script.how == "script" or list(steps) == list(patch):
        return True
    module = torch.jit.load(io.BytesIO(script.data))
    return sides.holds(module, model, probe.example, steps, forms.TOLERANCE)


def recipe(source: Source, request: Namespace) -> dict:
    """What makes the model again, for a shape that the program does not cover; its weights are in the program."""
    return {"module": source.target, "args": source.args, "take": request.take}


def describe(request: Namespace, source: Source, probe: Probe, steps: tuple) -> dict:
    """The description of the bundle, but for what the export itself says."""
    habits = source.habits
    channels_out = outputs.channels(probe.outputs[0], probe.inputs[0].shape[0], request.patch)
    name = request.name or request.model_type or source.target.partition(":")[2]
    text = [request.description or habits.description, *source.notes]
    return {
        "name": name,
        "description": "; ".join(part for part in text if part),
        "source": made_from(request, source),
        "channels-in": request.channels_in,
        "channels-out": channels_out,
        "input-names": names(request.input_names, "input", request.channels_in),
        "output-names": names(request.output_names, "output", channels_out),
        "patch": list(request.patch),
        "divisible-by": list(steps),
        "kind": request.kind,
        "output": request.output or habits.output or "intensity",
        "receptive-field": request.receptive_field,
        "align": request.align or habits.align,
        "normalisation": normalisation(request) or habits.normalisation,
    }


def made_from(request: Namespace, source: Source) -> str:
    """The class, and the weights' file name and checksum."""
    if not request.weights:
        return source.target
    return f"{source.target} with {request.weights.name} (SHA-256 {bundle.sha256(request.weights)})"


def names(given: list[str] | None, word: str, count: int) -> list[str]:
    """A name for each channel: those given, or the word, numbered where there are several."""
    if given is None:
        return [word] if count == 1 else [f"{word}-{index}" for index in range(count)]
    if len(given) != count:
        raise Cannot(f"{len(given)} {word} names are given for {count} channels")
    return given


def normalisation(request: Namespace) -> dict | None:
    """The normalisation that the command line names."""
    if request.normalisation is None:
        return None
    bounds = {"lower": request.norm_lower, "upper": request.norm_upper, "clip": request.clip_norm}
    return {"how": request.normalisation} | {key: value for key, value in bounds.items() if value is not None}


def account(request: Namespace, script: Script, program: Program) -> dict:
    """How the export went."""
    return {
        "torch": torch.__version__.partition("+")[0],
        "how": script.how,
        "program": program.data is not None,
        "reason": program.reason or None,
        "script-difference": script.difference,
        "program-difference": program.difference,
        "seed": request.seed,
    }


def report(request: Namespace, script: Script, program: Program) -> None:
    """Prints what the bundle holds."""
    why = f" (scripting failed: {script.refused})" if script.refused else ""
    print(f"{request.out}: TorchScript by {script.how}, difference from eager {script.difference:.1e}{why}")
    if program.data is None:
        print(f"{request.out}: no exported program: {program.reason}")
    else:
        print(f"{request.out}: exported program, difference from eager {program.difference:.1e}, free: {program.free}")
