"""Where a model comes from: a class and its arguments, weights, and what its bundle says of it."""

from argparse import Namespace
from dataclasses import dataclass, field

import torch
from torch import nn

from . import architectures, checkpoint
from .architectures import Architecture
from .failure import Usage


@dataclass(frozen=True)
class Source:
    """A model, how to make it again, and its architecture's habits."""

    model: nn.Module
    target: str
    args: dict
    habits: Architecture
    notes: list[str] = field(default_factory=list)


def make(request: Namespace) -> Source:
    """Makes the model that the command line names, in evaluation mode, with its weights or with random ones."""
    habits = habits_of(request)
    found = checkpoint.read(request.weights) if request.weights else None
    args = architectures.arguments(habits, request.args, found)
    torch.manual_seed(request.seed)
    model = architectures.construct(habits.module, args).eval()
    if found:
        checkpoint.load(model, found.weights, str(request.weights))
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return Source(model, habits.module, args, habits, notes(request, found))


def habits_of(request: Namespace) -> Architecture:
    """The architecture of a name, or a bare one of a class."""
    if (request.module is None) == (request.model_type is None):
        raise Usage("give either --module or --model-type")
    if request.module is not None:
        return Architecture(request.module)
    return architectures.find(request.model_type, request.registry)


def notes(request: Namespace, found: checkpoint.Checkpoint | None) -> list[str]:
    """What the bundle's description says beside the architecture's own."""
    if found is None:
        return [f"random weights of the seed {request.seed}"]
    if found.transform:
        kind = found.transform.get("kind", "unnamed") if isinstance(found.transform, dict) else "unnamed"
        return [f"the checkpoint's intensity transform ({kind}) is not part of the bundle"]
    return []
