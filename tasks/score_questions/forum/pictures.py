"""Sanitise images from outside: decode within limits, scale, and re-encode the pixels alone."""

import hashlib
import io
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter, ImageOps

from earmark.tasks.importers.cells import BadRow

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
# Errors raised by Pillow's decoders for damaged or malicious files.
FAULTS = (
    OSError, ValueError, SyntaxError, EOFError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError,
    AssertionError, MemoryError, struct.error, zlib.error,
)  # fmt: skip
LARGEST_BYTES = 20_000_000
MOST_PIXELS = 50_000_000  # an image of more is not decoded
JPEG_QUALITY = 92
SMALLEST_SIDE = 64  # pixels; a staff is not readable below
LONGEST_SIDE = 2048  # pixels; vision models scale larger images down to about this
HASH_SIDE = 16
INK_SIDE = 512  # longest side for comparing ink
MOST_SHIFT, PATCH = 2, 2  # pixels; a patch reaches so far around its middle: about a notehead of a small page
DIFFERENT = 0.3  # of the range from paper to ink, over a patch
HASH_MARGIN = 2.0  # gray levels; smaller differences between neighbours are noise

warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata, dropped anyway


@dataclass(frozen=True)
class StoredImage:
    """An image as stored in the dataset."""

    content: bytes
    extension: str  # `png` or `jpg`
    image: Image.Image  # its pixels, mode L or RGB
    difference_hash: bytes  # of `HASH_SIDE` squared bits

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the bytes."""
        return hashlib.sha256(self.content).hexdigest()


def read_picture(content: bytes) -> StoredImage:
    """Decode an image and re-encode it: first frame, upright, on white, no metadata."""
    if len(content) > LARGEST_BYTES:
        raise BadRow("image_too_large", f"expected at most {LARGEST_BYTES:,} bytes, found {len(content):,}")
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as opened:
            _check_size(opened)
            packed = opened.format in ("JPEG", "MPO")  # a phone's JPEG with further pictures in it is MPO
            image = _flat(ImageOps.exif_transpose(opened))
    except Image.DecompressionBombError:
        raise BadRow("image_too_large", f"expected at most {MOST_PIXELS:,} pixels, found more") from None
    except FAULTS:
        raise BadRow(
            "file_unreadable", f"expected an image ({', '.join(FORMATS)}), found none that can be decoded"
        ) from None
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    if packed:
        image.save(out, "JPEG", quality=JPEG_QUALITY)
    else:
        image.save(out, "PNG", compress_level=6)
    return StoredImage(out.getvalue(), "jpg" if packed else "png", image, difference_hash(image))


def _check_size(opened: Image.Image) -> None:
    width, height = opened.size
    if width * height > MOST_PIXELS:
        raise BadRow("image_too_large", f"expected at most {MOST_PIXELS:,} pixels, found {width} x {height}")
    if min(width, height) < SMALLEST_SIDE:
        raise BadRow("image_too_small", f"expected sides of {SMALLEST_SIDE} pixels, found {width} x {height}")


def _flat(image: Image.Image) -> Image.Image:
    """Return the first frame in gray or colour; transparent parts become white."""
    if image.mode in ("1", "L") and not image.has_transparency_data:
        return image.convert("L")
    if image.mode.startswith(("I", "F")):  # Pillow cuts off values above 255
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
    """Scale gray levels of more than 8 bits from their most likely range: to 1, 255, 65,535 or their highest."""
    values = np.nan_to_num(levels.astype(np.float64), posinf=0.0, neginf=0.0).clip(0.0)
    highest = float(values.max(initial=0.0))
    scales = [1.0] if levels.dtype.kind == "f" else []
    scales += [255.0, 65_535.0]
    white = next((scale for scale in scales if highest <= scale), highest)
    return np.asarray(np.rint(values * (255.0 / white)), np.uint8)


def difference_hash(image: Image.Image) -> bytes:
    """Hash an image by comparing each of 16 x 16 patches with the patch to its left; copies in another size hash alike.

    A row of bits is a row of patches; the method is N. Krawetz's dHash, with a margin so that blank paper has no bits.
    """
    small = image.convert("L").resize((HASH_SIDE + 1, HASH_SIDE), Image.Resampling.BOX)
    levels = np.asarray(small, np.float64)
    return np.packbits(levels[:, :-1] > levels[:, 1:] + HASH_MARGIN).tobytes()


def is_same_picture(one: Image.Image, other: Image.Image) -> bool:
    """Return whether two images show the same ink, at any size, with other margins or compression.

    Both are cut to their ink and compared at the size of the smaller, of which an edge cut elsewhere is a shift of a
    pixel or two. A scaled or compressed edge differs by little on either side, a moved notehead by most of a patch.
    """
    first, second = _ink(one), _ink(other)
    if abs(np.log(first.width / first.height * second.height / second.width)) > 0.05:
        return False
    side = min(INK_SIDE, max(first.size), max(second.size))
    size = (side, max(16, round(side * first.height / first.width)))
    if first.height > first.width:
        size = (max(16, round(side * first.width / first.height)), side)
    still, moving = (
        np.asarray(image.resize(size, Image.Resampling.BOX).filter(ImageFilter.BoxBlur(1)), np.float32)
        for image in (first, second)
    )
    still, moving = (levels / max(1.0, float(np.ptp(levels))) for levels in (still, moving))
    inner, shifts = slice(MOST_SHIFT, -MOST_SHIFT), range(-MOST_SHIFT, MOST_SHIFT + 1)
    differences = (np.abs(still - np.roll(moving, by, (0, 1)))[inner, inner] for by in product(shifts, shifts))
    least = min(differences, key=lambda difference: float(np.square(difference).mean()))
    patches = Image.fromarray(np.asarray(255 * least.clip(max=1), np.uint8)).filter(ImageFilter.BoxBlur(PATCH))
    return bool(np.asarray(patches).max() < 255 * DIFFERENT)


def _ink(image: Image.Image) -> Image.Image:
    """Return an image in gray, cut to the region of ink."""
    gray = image.convert("L")
    levels = np.asarray(gray)
    paper = float(np.median(levels))
    ink = np.abs(levels - paper) > 64
    if not ink.any():
        return gray
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return gray.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1))


def near_duplicates(
    hashes: Sequence[bytes],
    bits: int,
    same: Callable[[int, int], bool] = lambda one, other: True,
    needs: Mapping[int, int] = MappingProxyType({}),
) -> dict[int, int]:
    """Map each image near an earlier kept image to the first such image, and one without its needed image to that.

    Args:
        hashes: in order; an image is a duplicate only of an earlier image that is none itself.
        bits: the most differing bits.
        same: confirms that two images with near hashes, by their places, show the same picture: pages
            with little ink have near hashes though the notes differ.
        needs: earlier images without which others are not kept, nor have duplicates.
    """
    packed = np.frombuffer(b"".join(hashes), np.uint64).reshape(len(hashes), HASH_SIDE**2 // 64)
    stay, places = np.empty_like(packed), list[int]()
    first_of: dict[int, int] = {}
    for at, one in enumerate(packed):
        if (first := needs.get(at)) not in first_of:
            near = np.flatnonzero(np.bitwise_count(stay[: len(places)] ^ one).sum(axis=1) <= bits)
            first = next((places[place] for place in near if same(places[place], at)), None)
        if first is not None:
            first_of[at] = first
        else:
            stay[len(places)] = one
            places.append(at)
    return first_of
