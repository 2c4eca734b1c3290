"""Checkpoints: what a weights file holds, and loading it so that every key is accounted for."""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from .failure import Cannot, first_line

# Where the weights are in a checkpoint that holds more than them.
WEIGHT_KEYS = ("model", "state_dict", "model_state_dict")
# What wrappers put in front of every key: DataParallel, torch.compile, Lightning.
PREFIXES = ("module.", "_orig_mod.", "model.")
# So many keys are named in a message, then the rest is counted.
NAMED = 6


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a file, the arguments its model was made with, and its intensity transform, where it has them."""

    weights: dict[str, Tensor]
    model_config: dict = field(default_factory=dict)
    transform: dict | None = None


def read(path: Path) -> Checkpoint:
    """Reads a bare state dict, or a dictionary that holds one. Nothing in the file is run: only tensors and plain values are read."""
    if not path.is_file():
        raise Cannot(f"the weights {path} are not a file")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise Cannot(f"the weights {path} are not a checkpoint of tensors and plain values: {first_line(error)}") from error
    if not isinstance(found, dict):
        raise Cannot(f"the weights {path} hold a {type(found).__name__}, not a state dict")
    weights = next((found[key] for key in WEIGHT_KEYS if isinstance(found.get(key), dict)), None)
    if weights is None:
        return Checkpoint(state_dict(found, path))
    return Checkpoint(state_dict(weights, path), found.get("model_config") or {}, found.get("transform"))


def state_dict(weights: dict, path: Path) -> dict[str, Tensor]:
    """`weights` without what a wrapper put in front of every key."""
    stray = [str(key) for key, value in weights.items() if not isinstance(value, Tensor)]
    if stray or not weights:
        raise Cannot(f"the weights {path} hold no state dict: {names(stray) if stray else 'there is nothing in them'}")
    for prefix in PREFIXES:
        if all(key.startswith(prefix) for key in weights):
            weights = {key[len(prefix):]: value for key, value in weights.items()}
    return weights


def load(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Loads `weights`, or says which keys are missing, not expected, or of another shape."""
    wanted = model.state_dict()
    missing = [key for key in wanted if key not in weights]
    unexpected = [key for key in weights if key not in wanted]
    shapes = [
        f"{key} {list(weights[key].shape)} for {list(value.shape)}"
        for key, value in wanted.items()
        if key in weights and weights[key].shape != value.shape
    ]
    faults = [("missing", missing), ("not expected", unexpected), ("of another shape", shapes)]
    found = [f"{len(keys)} {fault} ({names(keys)})" for fault, keys in faults if keys]
    if found:
        raise Cannot(f"the weights {source} do not fit the model: {', '.join(found)}")
    model.load_state_dict(weights, strict=True)


def names(keys: list[str]) -> str:
    """The first few keys, and how many more there are."""
    more = f" and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return ", ".join(keys[:NAMED]) + more
