"""The names that `--model-type` takes: ours, and those of a user's registry file."""

import importlib
import os
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from .checkpoint import Checkpoint
from .failure import Cannot, Usage, first_line

# The keys of a table in a registry file.
KEYS = {"module", "args", "description", "divisible-by", "align", "output", "normalisation"}


@dataclass(frozen=True)
class Architecture:
    """A network by name: where its class is, the arguments it takes, and what its models have in common."""

    module: str
    args: dict = field(default_factory=dict)
    description: str = ""
    divisible_by: tuple[int, int, int] | None = None
    align: tuple[int, int, int] | None = None
    output: str | None = None
    normalisation: dict | None = None


DENOISE_NET = Architecture(
    module="haloflow_models.denoise_net:DenoiseNet",
    description="3-D U-Net that denoises light-sheet tiles",
    divisible_by=(16, 16, 16),
    align=(16, 16, 16),
    output="intensity",
    normalisation={"how": "percentile", "lower": 0.5, "upper": 99.9},
)
BUILT_IN = {"denoise-net": DENOISE_NET}


def find(name: str, registry: Path | None) -> Architecture:
    """The architecture `name`, from the registry file first, so that a user may replace ours."""
    known = BUILT_IN | (read_registry(registry) if registry else {})
    if name not in known:
        raise Usage(f"no model type is named {name}: known are {', '.join(sorted(known))}")
    return known[name]


def read_registry(path: Path) -> dict[str, Architecture]:
    """Reads a registry file: a table for each name, with `module` and, if need be, the other keys."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Cannot(f"the registry {path} cannot be read: {first_line(error)}") from error
    return {name: architecture(name, table, path) for name, table in tables.items()}


def architecture(name: str, table, path: Path) -> Architecture:
    """One table of a registry file."""
    if not isinstance(table, dict) or not isinstance(table.get("module"), str):
        raise Usage(f'the registry {path} gives {name} no module = "package.module:Class"')
    unknown = sorted(set(table) - KEYS)
    if unknown:
        raise Usage(f"the registry {path} gives {name} the unknown key {unknown[0]}: known are {', '.join(sorted(KEYS))}")
    values = {key.replace("-", "_"): value for key, value in table.items()}
    for key in ("divisible_by", "align"):
        if key in values:
            values[key] = tuple(values[key])
    return Architecture(**values)


def arguments(architecture: Architecture, given: dict, checkpoint: Checkpoint | None) -> dict:
    """The arguments for the class: the registry's, then what the checkpoint says, then those given."""
    found = denoise_net_arguments(checkpoint) if checkpoint and architecture is DENOISE_NET else {}
    return architecture.args | found | given


def denoise_net_arguments(checkpoint: Checkpoint) -> dict:
    """The denoiser's arguments: the norm from the keys, the rest from `model_config`."""
    config = dict(checkpoint.model_config)
    if config.pop("model", "UNet") != "UNet":
        raise Cannot(f"the checkpoint is of a {checkpoint.model_config['model']}, which denoise-net does not know")
    if not config.pop("trilinear", True):
        raise Cannot("the checkpoint is of a denoise-net with transposed convolutions, which is not supported")
    batch_norm = any(key.endswith(".running_mean") for key in checkpoint.weights)
    found = {"norm": "batch" if batch_norm else "group"}
    if "residual" in config:
        found["residual"] = bool(config.pop("residual"))
    factor = int(config.pop("width_multiplier", 1))
    if factor != 1:
        found["widths"] = [factor * width for width in (32, 64, 128, 256, 256)]
    if config:
        raise Cannot(f"the checkpoint's model_config has the unknown key {sorted(config)[0]}")
    return found


def construct(target: str, args: dict) -> nn.Module:
    """Makes the class or calls the function `package.module:Name` with `args`."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise Usage(f"a module is named package.module:Class, not {target}")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory = importlib.import_module(module_name)
        for part in attribute.split("."):
            factory = getattr(factory, part)
    except Exception as error:
        raise Cannot(f"{target} cannot be imported: {first_line(error)}") from error
    try:
        model = factory(**args)
    except Exception as error:
        raise Cannot(f"{target} cannot be made with the arguments {args}: {first_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise Cannot(f"{target} gives a {type(model).__name__}, not a torch.nn.Module")
    return model
