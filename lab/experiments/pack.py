"""CIFAR-10's binary batches in a little over half of their size, for machines that take only so many bytes at a time.

    python lab/experiments/pack.py pack part1.pack data_batch_1.bin data_batch_2.bin test_batch.bin
    python lab/experiments/pack.py unpack FOLDER part1.pack part2.pack

Lossless: a file is written back only if its SHA-256 is the packed one's. Three batches are 88 MiB and pack to about
48 MiB, in seconds, with numpy and the standard library alone. Two shards of the table need batches 1, 2 and test only.

Colours are stored as green and the differences to it; of every value the guess of the median edge detector (JPEG-LS)
is taken off, from its neighbours to the left and above; what is left is small, and Huffman coding does the rest.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SIDE, COLOURS = 32, 3
RECORD = 1 + COLOURS * SIDE**2
MAGIC = b"CIFARPK1"

Planes = NDArray[np.int16]  # (planes, rows, columns, images)


def main() -> None:
    """Pack or unpack; what goes wrong in one line."""
    try:
        run(sys.argv[1:])
    except (OSError, ValueError, KeyError, TypeError, struct.error, zlib.error) as error:
        sys.exit(f"pack.py: {error}")


def run(arguments: list[str]) -> None:
    """A command line."""
    match arguments:
        case ["pack", out, *files] if files:
            Path(out).write_bytes(pack([Path(file) for file in files]))
            print(f"{out}: {Path(out).stat().st_size / 2**20:.1f} MiB")
        case ["unpack", folder, *packs] if packs:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for file in packs:
                for name, content in unpack(Path(file).read_bytes(), of=file):
                    (Path(folder) / name).write_bytes(content)
                    print(f"{name}: {len(content):,} bytes, verified")
        case _:
            sys.exit(__doc__)


def pack(files: list[Path]) -> bytes:
    """All files as one: a magic word, the length of a JSON header, the header, and the streams it describes."""
    entries, streams = [], []
    for file in files:
        content = file.read_bytes()
        if len(content) % RECORD:
            raise ValueError(f"{file} is no batch of CIFAR-10: {len(content):,} bytes are no whole number of records")
        table = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        own = [zlib.compress(table[:, 0].tobytes(), 9)]
        own += [_squeeze(plane) for plane in _residuals(_to_planes(table[:, 1:].reshape(-1, COLOURS, SIDE, SIDE)))]
        digest = hashlib.sha256(content).hexdigest()
        entries.append({"name": file.name, "sha256": digest, "images": len(table), "sizes": [len(s) for s in own]})
        streams += own
    header = json.dumps(entries).encode()
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *streams])


def unpack(packed: bytes, *, of: str = "this") -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file; ValueError if `of` is not what was packed."""
    if packed[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{of} is not a packed file")
    (length,) = struct.unpack_from("<I", packed, len(MAGIC))
    at = len(MAGIC) + 4 + length
    for entry in json.loads(packed[len(MAGIC) + 4 : at]):
        streams = []
        for size in entry["sizes"]:
            streams.append(packed[at : at + size])
            at += size
        name = Path(entry["name"]).name
        if at > len(packed):
            raise ValueError(f"{of} ends within {name}")
        content = _restore(streams, entry["images"])
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise ValueError(f"{name} is not what was packed")
        yield name, content


def _restore(streams: list[bytes], images: int) -> bytes:
    labels = np.frombuffer(zlib.decompress(streams[0]), np.uint8)
    shape = (SIDE, SIDE, images)
    left = np.stack([np.frombuffer(zlib.decompress(s, -15), np.uint8).reshape(shape) for s in streams[1:]])
    pixels = _from_planes(_undo_residuals(left)).reshape(images, -1)
    return np.concatenate([labels[:, np.newaxis], pixels], axis=1).tobytes()


def _squeeze(residual: NDArray[np.uint8]) -> bytes:
    """Huffman coding alone: there is nothing repeated to be found, and it is fast."""
    coder = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    return coder.compress(residual.tobytes()) + coder.flush()


def _to_planes(pixels: NDArray[np.uint8]) -> Planes:
    """(images, colours, rows, columns) to green, red − green and blue − green modulo 256, images last."""
    red, green, blue = pixels.transpose(1, 2, 3, 0)
    middle = np.uint8(128)
    return np.stack([green, red - green + middle, blue - green + middle]).astype(np.int16)


def _from_planes(planes: Planes) -> NDArray[np.uint8]:
    green, red, blue = planes
    pixels = np.stack([(red + green - 128) & 255, green, (blue + green - 128) & 255]).astype(np.uint8)
    return pixels.transpose(3, 0, 1, 2)


def _residuals(planes: Planes) -> NDArray[np.uint8]:
    left = np.empty(planes.shape, np.uint8)
    for y in range(SIDE):
        for x in range(SIDE):
            left[:, y, x] = (planes[:, y, x] - _guess(planes, y, x)).astype(np.uint8)
    return left


def _undo_residuals(left: NDArray[np.uint8]) -> Planes:
    planes = np.empty(left.shape, np.int16)
    for y in range(SIDE):
        for x in range(SIDE):
            planes[:, y, x] = (left[:, y, x] + _guess(planes, y, x)) & 255
    return planes


def _guess(planes: Planes, y: int, x: int) -> Planes | int:
    """From the pixels to the left, above, and above left, which are known when a pixel's turn comes."""
    if x == 0 and y == 0:
        return 0
    if y == 0:
        return planes[:, y, x - 1]
    above = planes[:, y - 1, x]
    if x == 0:
        return above
    left, corner = planes[:, y, x - 1], planes[:, y - 1, x - 1]
    return np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))


if __name__ == "__main__":
    main()
