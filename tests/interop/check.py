"""Opens an OME-Zarr image as others do: `check.py IMAGE FINEST LEVELS`.

The metadata must pass the official JSON schemas; zarr-python, tensorstore and ome-zarr-py must read equal values on every level; the
finest level must hold FINEST (u16, little-endian), and every other level the rounded means of the one before.
"""

import importlib.util
import json
import pathlib
import sys

import jsonschema
import numpy as np
import tensorstore
import zarr
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012


def attributes(image: pathlib.Path) -> tuple[dict, str]:
    """The group's attributes, and the version that they are of."""
    if (image / "zarr.json").exists():
        stored = json.loads((image / "zarr.json").read_text())["attributes"]
        return stored, stored["ome"]["version"]
    stored = json.loads((image / ".zattrs").read_text())
    return stored, stored["multiscales"][0]["version"]


def validate(stored: dict, version: str) -> None:
    """Checks against the schema of images."""
    # Found without importing the package, whose dependencies are not there.
    package = pathlib.Path(importlib.util.find_spec("ngff_zarr").origin).parent
    schemas = {path.name: json.loads(path.read_text()) for path in (package / "spec" / version / "schemas").glob("*.schema")}
    resources = [(schema["$id"], Resource.from_contents(schema, DRAFT202012)) for schema in schemas.values() if "$id" in schema]
    registry = Registry().with_resources(resources)
    jsonschema.Draft202012Validator(schemas["image.schema"], registry=registry).validate(stored)


def with_tensorstore(array: pathlib.Path) -> np.ndarray:
    """The array's values, read by tensorstore."""
    driver = "zarr3" if (array / "zarr.json").exists() else "zarr"
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(array)}}
    return tensorstore.open(spec, open=True).result().read().result()


def mean(finer: np.ndarray, shape: tuple) -> np.ndarray:
    """The rounded means of the voxels that each voxel of a level of `shape` covers."""
    steps = [-(-fine // coarse) for fine, coarse in zip(finer.shape, shape)]
    padded = [(0, coarse * step - fine) for fine, coarse, step in zip(finer.shape, shape, steps)]
    split = [size for coarse, step in zip(shape, steps) for size in (coarse, step)]
    inner = tuple(range(1, 2 * len(shape), 2))
    values = np.pad(finer.astype("f8"), padded, constant_values=np.nan).reshape(split)
    return np.rint(np.nanmean(values, axis=inner)).astype(finer.dtype)


def main(image: pathlib.Path, finest: pathlib.Path, levels: int) -> None:
    stored, version = attributes(image)
    validate(stored, version)
    multiscale = (stored.get("ome") or stored)["multiscales"][0]
    paths = [dataset["path"] for dataset in multiscale["datasets"]]
    assert len(paths) == levels, paths
    nodes = list(Reader(parse_url(str(image)))())
    read = [np.asarray(level) for level in nodes[0].data]
    group = zarr.open_group(str(image), mode="r")
    before = None
    for path, by_ome in zip(paths, read, strict=True):
        values = group[path][...]
        np.testing.assert_array_equal(with_tensorstore(image / path), values)
        np.testing.assert_array_equal(by_ome, values)
        expected = np.fromfile(finest, "<u2").reshape(values.shape) if before is None else mean(before, values.shape)
        np.testing.assert_array_equal(values, expected)
        before = values
    first = np.asarray(multiscale["datasets"][0]["coordinateTransformations"][0]["scale"])
    for dataset in multiscale["datasets"][1:]:
        scale, translation = (np.asarray(step[step["type"]]) for step in dataset["coordinateTransformations"])
        np.testing.assert_allclose(translation, (scale - first) / 2)
    window = (stored.get("ome") or stored)["omero"]["channels"][0]["window"]
    assert (window["start"], window["end"]) == (group[paths[0]][...].min(), group[paths[0]][...].max()), window


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]))
