"""Checks the files for array engines against the schemas of those that read them, and prints them as JSON.

Run with the environment `manifests` (tests/interop/environment.py) and the folder `config`.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import botocore.session
import kubernetes_validate
import yaml
from botocore.validate import ParamValidator

KUBERNETES = "1.37"


def kubernetes(path: pathlib.Path) -> dict:
    """The job, which has no key that Kubernetes does not know."""
    job = yaml.safe_load(path.read_text())
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    return job


def aws_batch(folder: pathlib.Path) -> dict:
    """What is sent to AWS Batch; its service model names every key."""
    service = botocore.session.Session().get_service_model("batch")
    requests = {}
    for operation, name in (("RegisterJobDefinition", "job-definition"), ("SubmitJob", "array-job")):
        request = json.loads((folder / f"{name}.json").read_text())
        report = ParamValidator().validate(request, service.operation_model(operation).input_shape)
        assert not report.has_errors(), report.generate_report()
        requests[name] = request
    return requests


def matching(pattern: str):
    """A kind of value for argparse."""

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r} is not of the form {pattern}")
        return text

    return parse


# Of `man sbatch`, with the forms of values that it gives.
SBATCH = {
    "array": r"\d+-\d+(%\d+)?",
    "cpus-per-task": r"\d+",
    "gres": r"\w+(:\w+)?(:\d+)?",
    "job-name": r"[\w.-]+",
    "mem": r"\d+[KMGT]?",
    "open-mode": r"append|truncate",
    "output": r"[\w./%-]+",
    "partition": r"\w+",
    "signal": r"([RB]+:)?(\d+|[A-Z0-9]+)(@\d+)?",
    "time": r"(\d+-)?\d+(:\d\d){0,2}",
}


def slurm(path: pathlib.Path) -> dict:
    """The options of a script that shellcheck finds nothing in."""
    shellcheck = pathlib.Path(sys.executable).parent / "shellcheck"
    subprocess.run([shellcheck, path], check=True, stdout=sys.stderr)
    lines = path.read_text().splitlines()
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    options = [(i, line.removeprefix("#SBATCH ").split()) for i, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert all(i < first_command for i, _ in options), "sbatch reads no option after the first command"
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, pattern in SBATCH.items():
        parser.add_argument(f"--{name}", type=matching(pattern))
    parser.add_argument("--requeue", action="store_true")
    return vars(parser.parse_args([word for _, words in options for word in words]))


def main(config: pathlib.Path) -> None:
    found = {
        "kubernetes": kubernetes(config / "kubernetes/job.yaml"),
        "aws-batch": aws_batch(config / "aws-batch"),
        "slurm": slurm(config / "slurm/array.sbatch"),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
