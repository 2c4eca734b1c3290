"""The command line of `python -m haloflow_models`."""

import argparse
import json
import math
from pathlib import Path

from .failure import Usage

KINDS = ("f32", "f16", "bf16")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
OUTPUTS = ("intensity", "probability", "label")
NORMALISATIONS = ("percentile", "volume", "zscore", "global", "none")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str):
        raise Usage(message)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command and its options."""
    parser = Parser(prog="haloflow_models", description="Brings models into the forms that haloflow runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    export_options(commands.add_parser("export", help="write a bundle from a Python class"))
    compile_options(commands.add_parser("compile", help="compile a bundle's program for a device"))
    return parser.parse_args(arguments)


def export_options(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("--module", metavar="PACKAGE.MODULE:CLASS")
    parser.add_argument("--model-type", metavar="NAME")
    parser.add_argument("--args", type=json_object, default={}, metavar="JSON")
    parser.add_argument("--weights", type=Path, metavar="FILE")
    parser.add_argument("--registry", type=Path, metavar="FILE")
    parser.add_argument("--take", metavar="INDEX|KEY|all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--channels-in", type=count, required=True, metavar="N")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--overwrite", action="store_true")
    axes(parser, "--patch", required=True)
    description_options(parser)


def description_options(parser: argparse.ArgumentParser) -> None:
    """The options that only end up in `model.toml`."""
    parser.add_argument("--name")
    parser.add_argument("--description")
    parser.add_argument("--kind", choices=KINDS, default="f32")
    parser.add_argument("--output", choices=OUTPUTS)
    parser.add_argument("--input-names", nargs="+", metavar="NAME")
    parser.add_argument("--output-names", nargs="+", metavar="NAME")
    for option in ("--divisible-by", "--align", "--receptive-field"):
        axes(parser, option)
    parser.add_argument("--normalisation", choices=NORMALISATIONS)
    parser.add_argument("--norm-lower", type=number)
    parser.add_argument("--norm-upper", type=number)
    parser.add_argument("--clip-norm", type=number, nargs=2, metavar=("LO", "HI"))


def compile_options(parser: argparse.ArgumentParser) -> None:
    """The options of `compile`."""
    parser.add_argument("--bundle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", type=device, required=True, metavar="cpu|cuda:N")
    parser.add_argument("--batch", type=count, required=True, metavar="N")
    parser.add_argument("--kind", choices=KINDS, default="f32")
    parser.add_argument("--mode", choices=MODES, default="default")
    parser.add_argument("--dynamic", type=boolean, default=False, metavar="true|false")
    parser.add_argument("--out", type=package_path, required=True, metavar="FILE.pt2")
    axes(parser, "--patch", required=True)


def axes(parser: argparse.ArgumentParser, option: str, required: bool = False) -> None:
    """An option of three lengths."""
    parser.add_argument(option, type=count, nargs=3, required=required, metavar=("Z", "Y", "X"))


def count(text: str) -> int:
    """A number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return int(text)


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def boolean(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text} is neither true nor false")
    return text == "true"


def device(text: str) -> str:
    """`cpu`, or `cuda:N`."""
    kind, _, index = text.partition(":")
    if text != "cpu" and not (kind == "cuda" and index.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text} is neither cpu nor cuda:N")
    return text


def json_object(text: str) -> dict:
    """A JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text} is not a JSON object")
    return value


def package_path(text: str) -> Path:
    """A path that ends in .pt2."""
    path = Path(text)
    if path.suffix != ".pt2":
        raise argparse.ArgumentTypeError(f"{text} does not end in .pt2")
    return path
