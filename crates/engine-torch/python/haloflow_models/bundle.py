"""A bundle's folder: written whole or not at all, and read with its checksums checked."""

import contextlib
import hashlib
import os
import secrets
import shutil
import tomllib
from pathlib import Path

from . import toml_text
from .failure import Cannot, Usage, first_line

DESCRIPTION = "model.toml"
SCRIPT = "module.ts"
PROGRAM = "program.pt2"


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_free(folder: Path, overwrite: bool) -> None:
    """Refuses a folder that exists, or with `overwrite` one that is not a bundle."""
    if not folder.exists():
        return
    if not overwrite:
        raise Usage(f"{folder} exists already: give another --out, or --overwrite")
    if not (folder / DESCRIPTION).is_file():
        raise Usage(f"{folder} exists and is no bundle, so --overwrite leaves it alone")


def write(folder: Path, description: dict, files: dict[str, bytes], overwrite: bool) -> None:
    """Writes the files and `model.toml` beside them into a new folder, then gives it its name."""
    check_free(folder, overwrite)
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = beside(folder)
    try:
        fresh.mkdir()
        for name, data in files.items():
            (fresh / name).write_bytes(data)
        sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        (fresh / DESCRIPTION).write_text(toml_text.dumps(in_order(description, sums)))
        put(fresh, folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def in_order(description: dict, sums: dict[str, str]) -> dict:
    """The description with the checksums before the account of the export."""
    account = description.get("export", {})
    rest = {key: value for key, value in description.items() if key != "export"}
    return rest | {"files": sums, "export": account}


def put(fresh: Path, folder: Path) -> None:
    """Renames `fresh` to `folder`; what was there is put aside first and removed last."""
    old = beside(folder)
    if folder.exists():
        folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def read(folder: Path) -> dict:
    """The description of a bundle."""
    try:
        return tomllib.loads((folder / DESCRIPTION).read_text())
    except (OSError, ValueError) as error:
        raise Cannot(f"the bundle {folder} cannot be read: {first_line(error)}") from error


def checked(folder: Path, description: dict, name: str) -> Path:
    """The path of a file of the bundle, once its checksum is what `model.toml` says."""
    path = folder / name
    wanted = description.get("files", {}).get(name)
    if not path.is_file() or wanted is None:
        raise Cannot(f"the bundle {folder} has no {name}")
    found = sha256(path)
    if found != wanted:
        raise Cannot(f"{path} has the SHA-256 {found}, and model.toml names {wanted}")
    return path


def beside(path: Path) -> Path:
    """A name beside `path`, with its suffix, that no other process takes."""
    return path.with_name(f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")


@contextlib.contextmanager
def replacing(path: Path):
    """A path to write to, which becomes `path` at the end and is removed if something fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = beside(path)
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
