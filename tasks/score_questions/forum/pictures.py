"""An image from outside, made safe: decoded within limits, scaled, written anew without anything but its pixels."""

from __future__ import annotations

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from earmark.schemas.score_questions import Images
from earmark.tasks.importers.cells import BadRow

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
# What Pillow's decoders raise for files that someone, or chance, has spoilt.
FAULTS = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError,
    AssertionError, MemoryError, struct.error, zlib.error,
)  # fmt: skip
JPEG_QUALITY = 92
HASH_SIDE = 16
HASH_MARGIN = 2.0  # gray levels; smaller differences between neighbours are noise

warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata, which is dropped


@dataclass(frozen=True)
class Picture:
    """An image as the dataset holds it."""

    content: bytes
    extension: str  # `png` or `jpg`
    image: Image.Image  # its pixels, mode L or RGB
    difference_hash: bytes  # of `HASH_SIDE` squared bits

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes."""
        return hashlib.sha256(self.content).hexdigest()


def read_picture(content: bytes, limits: Images) -> Picture:
    """Decode an image and write it anew: first frame, upright, on white, no metadata.

    Raises:
        BadRow: it is no image, or beyond the limits.
    """
    if len(content) > limits.largest_bytes:
        raise BadRow("image_too_large", f"expected at most {limits.largest_bytes:,} bytes, found {len(content):,}")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            _check_size(opened, limits)
            packed = opened.format in ("JPEG", "MPO")  # a phone's JPEG with further pictures in it is MPO
            image = _flat(ImageOps.exif_transpose(opened))
    except Image.DecompressionBombError:
        raise BadRow("image_too_large", f"expected at most {limits.most_pixels:,} pixels, found more") from None
    except FAULTS:
        raise BadRow("bad_image", f"expected an image ({', '.join(FORMATS)}), found none that can be decoded") from None
    image.thumbnail((limits.longest_side, limits.longest_side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    if packed:
        image.save(out, "JPEG", quality=JPEG_QUALITY)
    else:
        image.save(out, "PNG", compress_level=6)
    return Picture(out.getvalue(), "jpg" if packed else "png", image, difference_hash(image))


def _check_size(opened: Image.Image, limits: Images) -> None:
    width, height = opened.size
    if width * height > limits.most_pixels:
        raise BadRow("image_too_large", f"expected at most {limits.most_pixels:,} pixels, found {width} x {height}")
    if min(width, height) < limits.smallest_side:
        raise BadRow("image_too_small", f"expected sides of {limits.smallest_side} pixels, found {width} x {height}")


def _flat(image: Image.Image) -> Image.Image:
    """The first frame in gray or colour; what is transparent shows white."""
    if image.mode in ("1", "L"):
        return image.convert("L")
    if image.mode.startswith(("I", "F")):  # Pillow cuts off what is above 255
        return Image.fromarray(_in_bytes(np.asarray(image)))
    if image.has_transparency_data:
        coloured = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, coloured)
    flat = image.convert("RGB")
    channels = np.asarray(flat)
    gray = (channels[..., 0] == channels[..., 1]).all() and (channels[..., 1] == channels[..., 2]).all()
    return Image.fromarray(channels[..., 0].copy()) if gray else Image.fromarray(channels.copy())


def _in_bytes(levels: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Gray levels of more than 8 bits on the scale that they are most likely on: to 1, 255, 65,535 or their highest."""
    values = np.nan_to_num(levels.astype(np.float64), posinf=0.0, neginf=0.0).clip(0.0)
    highest = float(values.max(initial=0.0))
    scales = [1.0] if levels.dtype.kind == "f" else []
    scales += [65_535.0] if levels.dtype.itemsize == 2 else [255.0, 65_535.0]
    white = next((scale for scale in scales if highest <= scale), highest)
    return np.asarray(np.rint(values * (255.0 / white)), np.uint8)


def difference_hash(image: Image.Image) -> bytes:
    """Whether each of 16 x 16 patches is darker than the one to its left: the same for copies in another size.

    A row of bits a row of patches; the method is N. Krawetz's dHash, with a margin so that blank paper has no bits.
    """
    small = image.convert("L").resize((HASH_SIDE + 1, HASH_SIDE), Image.Resampling.BOX)
    levels = np.asarray(small, np.float64)
    return np.packbits(levels[:, :-1] > levels[:, 1:] + HASH_MARGIN).tobytes()


def near_duplicates(hashes: Sequence[bytes], bits: int) -> dict[int, int]:
    """For each image that is near an earlier one that stays: the first such.

    Args:
        hashes: in order; an image is a duplicate only of one before it that is none itself.
        bits: how many bits may differ.
    """
    packed = np.frombuffer(b"".join(hashes), np.uint64).reshape(len(hashes), HASH_SIDE**2 // 64)
    stay, places = np.empty_like(packed), list[int]()
    first_of: dict[int, int] = {}
    for at, one in enumerate(packed):
        near = np.bitwise_count(stay[: len(places)] ^ one).sum(axis=1) <= bits
        if near.any():
            first_of[at] = places[int(near.argmax())]
        else:
            stay[len(places)] = one
            places.append(at)
    return first_of
