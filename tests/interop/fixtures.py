"""Writes arrays in every form that others write: `fixtures.py FOLDER`; prints a JSON list of what each holds.

Each entry has the array's path, its values as a file of little-endian f8 in C order, and the word that a refusal must name where
haloflow cannot read it.
"""

import json
import pathlib
import shutil
import sys
import warnings

import numcodecs as nc
import numpy as np
import tensorstore
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ShardingCodec, TransposeCodec, ZstdCodec

warnings.simplefilter("ignore")
SHAPE = (19, 26, 33)
CHUNKS = (8, 16, 16)
VOXELS = (np.arange(np.prod(SHAPE), dtype="u4") * 2654435761 >> 19).astype("u2").reshape(SHAPE)
ABSENT = VOXELS.copy()
ABSENT[:8, :16, :16] = 0

FOLDER = pathlib.Path(sys.argv[1])
ENTRIES: list[dict] = []


def note(name: str, values: np.ndarray, refused: str | None = None) -> pathlib.Path:
    """Adds an entry."""
    file = FOLDER / f"{len(ENTRIES)}.f8"
    values.astype("<f8").tofile(file)
    ENTRIES.append({"path": str(FOLDER / name), "values": str(file), "shape": values.shape, "refused": refused})
    return FOLDER / name


def v2(name: str, values: np.ndarray = VOXELS, refused: str | None = None, dtype: str | None = None, **options) -> pathlib.Path:
    """An array of version 2, written by zarr-python."""
    options.setdefault("compressors", nc.Zstd(1))
    options.setdefault("fill_value", 0)
    path = note(f"v2/{name}", values, refused)
    array = zarr.create_array(path, shape=values.shape, chunks=CHUNKS, dtype=dtype or values.dtype, zarr_format=2, **options)
    array[...] = values
    return path


def v3(name: str, values: np.ndarray = VOXELS, chunks: tuple = CHUNKS, **options) -> None:
    """An array of version 3, written by zarr-python."""
    options.setdefault("fill_value", 0)
    array = zarr.create_array(
        note(f"v3/{name}", values), shape=values.shape, chunks=chunks, dtype=values.dtype, zarr_format=3, **options
    )
    array[...] = values


def shard(**options) -> ShardingCodec:
    """Shards with an index under a checksum."""
    options.setdefault("codecs", [BytesCodec(), ZstdCodec(level=1)])
    return ShardingCodec(chunk_shape=(4, 8, 8), index_codecs=[BytesCodec(), Crc32cCodec()], **options)


def with_tensorstore(name: str, spec: dict, values: np.ndarray = VOXELS) -> None:
    """An array written by tensorstore."""
    spec = {**spec, "kvstore": {"driver": "file", "path": str(note(f"ts/{name}", values))}, "create": True}
    tensorstore.open(spec, dtype=values.dtype, shape=values.shape).result()[...].write(values).result()


def version_2() -> None:
    for name, codec in {
        "none": None,
        "zlib": nc.Zlib(3),
        "gzip": nc.GZip(3),
        "bz2": nc.BZ2(3),
        "zstd": nc.Zstd(3),
        "zstd-checksum": nc.Zstd(3, checksum=True),
    }.items():
        v2(name, compressors=codec)
    for inner in ("lz4", "lz4hc", "zlib", "zstd", "blosclz"):
        for shuffle in (0, 1, 2):
            v2(f"blosc-{inner}-{shuffle}", compressors=nc.Blosc(cname=inner, clevel=3, shuffle=shuffle))
    v2("lzma", refused="lzma", compressors=nc.LZMA())
    v2("lz4", refused="lz4", compressors=nc.LZ4())
    v2("delta", refused="delta", filters=[nc.Delta(dtype="<u2")])
    v2("order-f", order="F")
    v2("slash", chunk_key_encoding={"name": "v2", "separator": "/"})
    for dtype in (">u2", ">i4", ">f4", ">f8", "|u1", "|i1", "<i8", "<f2"):
        v2(f"kind-{dtype[1:]}", (VOXELS % 100).astype(dtype[1:]), dtype=dtype)
    absent = {"config": {"write_empty_chunks": False}}
    v2("absent", ABSENT, **absent)
    path = v2("fill-null", ABSENT, **absent)
    metadata = json.loads((path / ".zarray").read_text())
    (path / ".zarray").write_text(json.dumps({**metadata, "fill_value": None}))
    nan = ABSENT.astype("f4")
    nan[:8, :16, :16] = np.nan
    v2("fill-nan", nan, fill_value=float("nan"), **absent)


def version_3() -> None:
    v3("raw", compressors=None)
    v3("zstd", compressors=ZstdCodec(level=3))
    v3("zstd-checksum", compressors=ZstdCodec(level=3, checksum=True))
    v3("gzip", compressors=GzipCodec(level=5))
    v3("blosc", compressors=BloscCodec(cname="zstd", clevel=3, shuffle="shuffle"))
    v3("blosc-bits", compressors=BloscCodec(cname="lz4", clevel=3, shuffle="bitshuffle"))
    v3("crc32c", compressors=[ZstdCodec(level=1), Crc32cCodec()])
    v3("big", serializer=BytesCodec(endian="big"), compressors=ZstdCodec(level=1))
    v3("transpose", filters=[TransposeCodec(order=(2, 0, 1))], compressors=ZstdCodec(level=1))
    v3("dots", chunk_key_encoding={"name": "default", "separator": "."})
    v3("old-keys", chunk_key_encoding={"name": "v2", "separator": "/"})
    for place in ("start", "end"):
        v3(f"shard-{place}", chunks=(8, 16, 32), serializer=shard(index_location=place), compressors=None)
    inner = [TransposeCodec(order=(2, 1, 0)), BytesCodec(endian="big"), BloscCodec(cname="zstd"), Crc32cCodec()]
    v3("shard-codecs", chunks=(8, 16, 32), serializer=shard(codecs=inner), compressors=None)
    config = {"write_empty_chunks": False}
    v3("shard-absent", ABSENT, chunks=(8, 16, 32), serializer=shard(), compressors=None, config=config)
    nested = ShardingCodec(chunk_shape=(8, 16, 16), codecs=[ShardingCodec(chunk_shape=(4, 8, 8), codecs=[BytesCodec()])])
    v3("shard-in-shard", chunks=(8, 16, 32), serializer=nested, compressors=None)


def of_tensorstore() -> None:
    blosc = {"id": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 1}
    with_tensorstore("v2", {"driver": "zarr", "metadata": {"chunks": CHUNKS, "compressor": blosc, "dimension_separator": "/"}})
    zlib = {"id": "zlib", "level": 1}
    with_tensorstore("v2-big", {"driver": "zarr", "metadata": {"chunks": CHUNKS, "dtype": ">u2", "compressor": zlib}})
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    sharding = {
        "name": "sharding_indexed",
        "configuration": {
            "chunk_shape": [4, 8, 8],
            "codecs": [little, {"name": "zstd", "configuration": {"level": 1}}],
            "index_codecs": [little, {"name": "crc32c"}],
        },
    }
    grid = {"name": "regular", "configuration": {"chunk_shape": [8, 16, 32]}}
    with_tensorstore("v3-shard", {"driver": "zarr3", "metadata": {"chunk_grid": grid, "codecs": [sharding]}})


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    version_2()
    version_3()
    of_tensorstore()
    print(json.dumps(ENTRIES))
