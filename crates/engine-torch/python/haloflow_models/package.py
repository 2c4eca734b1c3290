"""The command `compile`: from a bundle's program to a package for one device and shape."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.export.passes import move_to_device_pass

from . import architectures, bundle, checkpoint, forms, inductor, outputs, toml_text, winograd
from .failure import Cannot, first_line

KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# How far a package may be from the program in the same element kind, relative to the largest value.
TOLERANCES = {"f32": 1e-4, "f16": 2e-2, "bf16": 1e-1}


def run(request: Namespace) -> None:
    """Writes the package and what it was made for beside it, once it has run and given what the program gives."""
    description = bundle.read(request.bundle)
    check_device(request.device)
    # As haloflow runs it, where nothing else is asked for.
    torch.backends.cudnn.allow_tf32 = False
    say("reading the program")
    module, channels = load(request, description)
    with torch.no_grad():
        module = module.to(KINDS[request.kind])
        example = draw(request, channels)
        exported = export(module, example, request)
        with bundle.replacing(request.out) as fresh:
            difference = compiled(fresh, exported, example, request)
            note = describe(request, description, bundle.sha256(fresh))
    with bundle.replacing(request.out.with_suffix(".toml")) as fresh:
        fresh.write_text(toml_text.dumps(note))
    print(f"{request.out}: compiled for {note['device']} {note['architecture']}, difference from the program {difference:.1e}")


def say(step: str) -> None:
    """Tells what is done next: where the process is ended from outside, this is the last that is heard of it."""
    print(step, flush=True)


def load(request: Namespace, description: dict) -> tuple[nn.Module, int]:
    """The program as a module that takes the shape asked for, and its number of channels."""
    if bundle.PROGRAM not in description.get("files", {}):
        why = description.get("export", {}).get("reason", "model.toml names no program.pt2")
        raise Cannot(f"the bundle {request.bundle} has no exported program to compile: {why}")
    path = bundle.checked(request.bundle, description, bundle.PROGRAM)
    note = {forms.MADE_FOR: ""}
    try:
        program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=note)
    except Exception as error:
        raise Cannot(f"{path} cannot be loaded by torch {torch.__version__}: {first_line(error)}") from error
    if not note[forms.MADE_FOR]:
        return foreign(program)
    made_for = json.loads(note[forms.MADE_FOR])
    module = program.module() if covers(made_for, request) else made_again(program, made_for, request)
    return module, made_for["channels"]


def foreign(program: ExportedProgram) -> tuple[nn.Module, int]:
    """A program that somebody else exported: what it takes is only known by its example, and tried when it is exported again."""
    inputs = list((program.example_inputs or ((), {}))[0])
    if len(inputs) != 1 or not isinstance(inputs[0], Tensor) or inputs[0].dim() != 5:
        found = ", ".join(str(list(value.shape)) if isinstance(value, Tensor) else type(value).__name__ for value in inputs)
        raise Cannot(f"the program takes {found or 'no example that it names'}, not one tensor of batch, channels, z, y and x")
    module = program.module()
    module.made_for = f"; it was exported with {list(inputs[0].shape)}"
    return module, inputs[0].shape[1]


def covers(made_for: dict, request: Namespace) -> bool:
    """Whether the program takes the batch and the patch asked for."""
    same_patch = list(request.patch) == made_for["patch"]
    same_rows = request.batch == made_for["rows"] and not request.dynamic
    return {"batch and patch": True, "batch": same_patch}.get(made_for["free"], same_patch and same_rows)


def made_again(program: ExportedProgram, made_for: dict, request: Namespace) -> nn.Module:
    """The model itself with the program's weights, for a shape that the program is not free to take."""
    wanted = f"batch {request.batch} of patch {list(request.patch)}"
    made = f"batch {made_for['rows']} of patch {made_for['patch']}, free: {made_for['free']}"
    try:
        model = architectures.construct(made_for["module"], made_for["args"]).eval()
        with torch.no_grad():
            output = model(torch.zeros(1, made_for["channels"], *request.patch))
        model = outputs.one_tensor(model, output, made_for["take"]).eval()
        checkpoint.load(model, program.state_dict, "of the program")
    except Exception as error:
        why = first_line(error)
        raise Cannot(f"the program was made for {made}, and the model cannot be exported again for {wanted}: {why}") from error
    return model


def check_device(device: str) -> None:
    """Refuses a GPU that this machine has not."""
    if device == "cpu":
        return
    index = int(device.partition(":")[2])
    if index >= torch.cuda.device_count():
        raise Cannot(f"there is no {device}: torch sees {torch.cuda.device_count()} CUDA devices")


def draw(request: Namespace, channels: int) -> Tensor:
    """A random batch in the kind asked for."""
    rows = max(request.batch, 2) if request.dynamic else request.batch
    random = torch.Generator().manual_seed(0)
    return torch.rand((rows, channels, *request.patch), generator=random).to(KINDS[request.kind])


def export(module: nn.Module, example: Tensor, request: Namespace) -> ExportedProgram:
    """The program at the shape asked for, on the device asked for."""
    shapes = ({0: Dim("batch", min=1, max=forms.MOST_ROWS)},) if request.dynamic else None
    try:
        exported = forms.export(module, example, shapes)
        if request.device != "cpu":
            exported = move_to_device_pass(exported, request.device)
    except Exception as error:
        shape = f"batch {request.batch} of patch {list(request.patch)} in {request.kind}"
        made_for = getattr(module, "made_for", "")
        raise Cannot(f"the program cannot be exported again for {shape}{made_for}: {first_line(error)}") from error
    return exported


def compiled(path: Path, exported: ExportedProgram, example: Tensor, request: Namespace) -> float:
    """Compiles the program, with fewer multiplications if it can be done, and runs the package: how far it is from the program."""
    try:
        faster = with_fewer_multiplications(exported, example, request)
        if faster is not None:
            return compiled_and_checked(path, faster, exported, example, request)
    except Exception as error:
        say(f"with its convolutions rewritten the program does not work, so they are left as they are: {first_line(error)}")
    return compiled_and_checked(path, exported, exported, example, request)


def with_fewer_multiplications(exported: ExportedProgram, example: Tensor, request: Namespace) -> ExportedProgram | None:
    """The same program for a CPU in f32, where multiplications are what a batch takes its time for; nothing if there are none to save."""
    if request.device != "cpu" or request.kind != "f32":
        return None
    module = winograd.rewritten(exported)
    return None if module is None else export(module, example, request)


def compiled_and_checked(
    path: Path, form: ExportedProgram, exported: ExportedProgram, example: Tensor, request: Namespace
) -> float:
    """Compiles a form of the program and runs it beside the program."""
    say(f"compiling for {request.device}")
    compile_to(path, form, request)
    say("running the package beside the program")
    return check(path, exported, example, request)


def compile_to(path: Path, exported: ExportedProgram, request: Namespace) -> None:
    """Compiles the program into a package at `path`."""
    choices = inductor.cpu_choices() if request.device == "cpu" else contextlib.nullcontext()
    options = inductor.options(request.device, request.mode)
    try:
        with choices:
            torch._inductor.aoti_compile_and_package(exported, package_path=str(path), inductor_configs=options)
    except Exception as error:
        raise Cannot(f"the program cannot be compiled for {request.device}: {first_line(error)}") from error


def check(path: Path, exported: ExportedProgram, example: Tensor, request: Namespace) -> float:
    """Runs the package beside the program: how far they are apart."""
    try:
        wanted = joined(exported.module()(example.to(request.device))).float().cpu()
    except Exception as error:
        raise Cannot(f"the program does not run on {request.device}: {first_line(error)}") from error
    torch.cuda.empty_cache()
    given = tried(path, example, request).reshape(wanted.shape)
    difference = (given - wanted).abs().max().item() / max(wanted.abs().max().item(), 1e-30)
    if not difference <= TOLERANCES[request.kind]:
        raise Cannot(f"the package's output differs from the program's by {difference:.1e} of the largest value")
    return difference


def tried(path: Path, example: Tensor, request: Namespace) -> Tensor:
    """What the package gives, run in a process of its own: native code may end the one that it runs in."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = (Path(folder) / name for name in ("input", "output"))
        given.write_bytes(example.contiguous().flatten().view(torch.uint8).numpy().tobytes())
        rows, channels, *patch = map(str, example.shape)
        words = [str(path), "--device", request.device, "--kind", request.kind, "--rows", rows, "--channels", channels]
        words += ["--patch", *patch, "--input", str(given), "--output", str(result)]
        source = str(Path(__file__).resolve().parents[1])
        path_list = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        environment = os.environ | {"PYTHONPATH": path_list}
        done = subprocess.run(trial_command(words), capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment)
        if done.returncode < 0:
            raise Cannot(f"the package was compiled, and running it ended with {signal.Signals(-done.returncode).name}")
        if done.returncode > 0:
            told = [line for line in done.stderr.splitlines() if line.strip()] or ["it said nothing"]
            raise Cannot(f"the package was compiled and does not run: {told[-1]}")
        return torch.frombuffer(bytearray(result.read_bytes()), dtype=KINDS[request.kind]).float()


def trial_command(words: list[str]) -> list[str]:
    """The command line of a trial: by the program that will run the package later, if one has asked for it.

    Python's own loader ends with SIGSEGV on packages for CUDA on some machines where that program runs them.
    """
    program = os.environ.get("HALOFLOW_TRIAL")
    return [program, "model", "trial", *words] if program else [sys.executable, "-m", "haloflow_models.trial", *words]


def joined(output) -> Tensor:
    """One tensor of an output that may be several."""
    if isinstance(output, dict):
        output = list(output.values())
    return output if isinstance(output, Tensor) else torch.cat(list(output), dim=1)


def describe(request: Namespace, description: dict, sha256: str) -> dict:
    """What the package was made for."""
    return {
        "libtorch": torch.__version__.partition("+")[0],
        "device": request.device.partition(":")[0],
        "architecture": architecture(request.device),
        "batch": 0 if request.dynamic else request.batch,
        "patch": list(request.patch),
        "kind": request.kind,
        "mode": request.mode,
        "dynamic": request.dynamic,
        "sha256": sha256,
        "weights-sha256": description["files"].get(bundle.SCRIPT) or description["files"][bundle.PROGRAM],
    }


def architecture(device: str) -> str:
    """The instructions that the CPU has, as libtorch names them, or the GPU's `sm_XY`."""
    if device == "cpu":
        return torch.backends.cpu.get_cpu_capability()
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"
