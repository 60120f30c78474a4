"""Distractors in pixels: moving backgrounds, and noise on every pixel."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from revbis.envs.rendering import Pixels
from revbis.io import schema
from revbis.io.plugins import require

Split = Literal["train", "eval"]
Floats = NDArray[np.float64]

GAUSSIAN = "gaussian"  # not a background: `PixelNoise` is added to the finished frame
INSTANCE = "instance"
BACKGROUNDS = ("noise", "shapes", INSTANCE, "video:FOLDER")
SPECS = (*BACKGROUNDS, GAUSSIAN)
VARIANTS: dict[str, range] = {"train": range(60), "eval": range(60, 90)}
VIDEO_SUFFIXES = (".mp4", ".avi", ".mkv", ".mov")
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
MAX_FRAMES = 1000

# Entropy of the generators. A new version of a kind gets a new number and a new name.
_NOISE_V1, _SHAPES_V1, _EPISODES = 1, 2, 1000
_START_SPAN = 10_000


class Distractor:
    """A moving background, shown at the pixels that a mask marks as sky or ground.

    The seed only determines which variant an episode shows, and its first frame.

    Args:
        spec: "noise", "shapes", "instance" or "video:FOLDER". The folder holds videos (mp4, avi,
            mkv, mov) and folders of images (png, jpg); each is a clip, of which the first 1000
            frames are read whenever an episode switches to it, so small clips are faster.
        size: Side of the image.
        split: "train" or "eval"; they share no variant. Every third clip of a folder is for
            evaluation.
        clips: How many clips "instance" has.
        clip: Gives one of them by its number, [n, 3, size, size].

    Attributes:
        identity: Kind, version and split; for a folder also its name and a digest of the names and
            sizes of its files.
        variant: The variant that this episode shows; -1 before the first reset.

    Raises:
        ValueError: For an unknown spec, or a folder that cannot be used.
        ModuleNotFoundError: If there are videos to read and PyAV is not installed.
    """

    def __init__(
        self,
        spec: str,
        size: int,
        *,
        split: Split = "train",
        clips: int = 0,
        clip: Callable[[int], Pixels] | None = None,
    ) -> None:
        self.size = size
        kind, folder = parse_background(spec)
        self._source: _Procedural | _Video | _Recorded
        if folder is not None:
            self._source = _Video(folder, size, split)
        elif kind == INSTANCE:
            assert clip is not None and clips
            self._source = _Recorded(f"{kind}-v1", range(clips), clip)
        else:
            self._source = _Procedural(f"{kind}-v1", size, VARIANTS[split])
        self.identity = f"{self._source.name}/{split}"
        self.variant, self._time = -1, 0
        self._rng: np.random.Generator | None = None

    def reset(self, seed: int | None) -> None:
        """Chooses an episode's variant and first frame; a seed restarts the sequence."""
        if seed is not None:
            self._rng = seeded_generator(_EPISODES, seed)
        elif self._rng is None:
            self._rng = np.random.default_rng()
        pool = self._source.pool
        variant = pool[int(self._rng.integers(len(pool)))]
        self._source.prepare(variant)
        self.variant, self._time = variant, int(self._rng.integers(_START_SPAN))

    def paint(self, frame: Pixels, background_mask: NDArray[np.bool_]) -> None:
        """Draws the current background into `frame`, in place, and advances time by one frame.

        Args:
            frame: [3, size, size], uint8.
            background_mask: [size, size], bool: the pixels that show the background.
        """
        if self.variant < 0:
            raise ValueError("paint needs an episode, and none has started: call reset(seed) first")
        np.copyto(frame, self._source.picture(self.variant, self._time), where=background_mask)
        self._time += 1

    def skip(self, frames: int) -> None:
        """Advances time as `paint` of so many frames would."""
        self._time += frames

    @property
    def frame(self) -> int:
        """The number of the frame that `paint` shows next, before it is taken modulo the clip."""
        return self._time


def picture(kind: str, variant: int, t: int, size: int) -> Pixels:
    """The image [3, size, size] of a procedural background: a pure function of its arguments.

    Args:
        kind: "noise-v1" or "shapes-v1".
        variant: One of the kind's variants.
        t: Time in frames.
        size: Side of the image; the layout does not depend on it.
    """
    return _DRAW[kind](variant, t, size)


class _Noise(NamedTuple):
    """Nodes of a lattice on a torus; each colour of each node oscillates independently."""

    phase: Floats  # [3, cells, cells], radians
    pace: Floats  # [3, cells, cells], radians per frame
    drift: Floats  # [2], cells per frame, down and right


@cache
def _noise_of(variant: int) -> _Noise:
    # Only random() is used: of NumPy's streams it is the least likely to change.
    rng = seeded_generator(_NOISE_V1, variant)
    cells = 4 + int(4 * rng.random())
    phase = 2 * np.pi * rng.random((3, cells, cells))
    pace = 0.03 + 0.09 * rng.random((3, cells, cells))
    heading, speed = 2 * np.pi * rng.random(), 0.008 + 0.012 * rng.random()
    drift = cells * speed * np.array([np.sin(heading), np.cos(heading)])
    return _Noise(phase, pace, drift)


def _draw_noise(variant: int, t: int, size: int) -> Pixels:
    noise = _noise_of(variant)
    cells = noise.phase.shape[-1]
    # float64: a last bit that differs between machines then practically never reaches a pixel.
    nodes = 128.0 + 127.0 * np.sin(noise.phase + noise.pace * t)
    place = (cells * _centres(size) + (noise.drift * t)[:, None]) % cells
    away = np.abs(place[:, :, None] - np.arange(cells))
    near = np.maximum(0.0, 1.0 - np.minimum(away, cells - away))
    # [2, size, cells]: the weight of each node in each row, and in each column; they sum to 1.
    weight = near * near * (3.0 - 2.0 * near)
    return np.asarray(weight[0] @ nodes @ weight[1].T, dtype=np.uint8)


class _Shapes(NamedTuple):
    """Discs and rectangles whose centres bounce in the unit square."""

    palette: Pixels  # [3, 1 + shapes], the background's colour first
    start: Floats  # [2, shapes]
    pace: Floats  # [2, shapes], sides per frame
    half: Floats  # [2, shapes], half height and half width
    round: tuple[bool, ...]


@cache
def _shapes_of(variant: int) -> _Shapes:
    rng = seeded_generator(_SHAPES_V1, variant)
    count = 8 + int(5 * rng.random())
    palette = (256 * rng.random((3, 1 + count))).astype(np.uint8)
    start = 2 * rng.random((2, count))
    pace = (0.008 + 0.017 * rng.random((2, count))) * np.where(rng.random((2, count)) < 0.5, -1, 1)
    half = 0.07 + 0.11 * rng.random((2, count))
    discs = tuple(shape % 2 == 0 for shape in range(count))
    half[1, discs] = half[0, discs]
    return _Shapes(palette, start, pace, half, discs)


def _draw_shapes(variant: int, t: int, size: int) -> Pixels:
    shapes = _shapes_of(variant)
    centre = 1.0 - np.abs(1.0 - (shapes.start + shapes.pace * t) % 2.0)
    low = np.ceil(size * (centre - shapes.half) - 0.5).clip(0, size).astype(int).tolist()
    high = np.ceil(size * (centre + shapes.half) - 0.5).clip(0, size).astype(int).tolist()
    grid, index = _centres(size), np.zeros((size, size), dtype=np.intp)
    for shape, is_disc in enumerate(shapes.round):
        rows, columns = (slice(low[axis][shape], high[axis][shape]) for axis in (0, 1))
        box = index[rows, columns]
        if is_disc:
            down, right = grid[rows] - centre[0, shape], grid[columns] - centre[1, shape]
            inside = (down * down)[:, None] + right * right <= shapes.half[0, shape] ** 2
            np.copyto(box, shape + 1, where=inside)
        else:
            box[...] = shape + 1
    return shapes.palette.take(index, axis=1)


_Draw = Callable[[int, int, int], Pixels]
_DRAW: dict[str, _Draw] = {"noise-v1": _draw_noise, "shapes-v1": _draw_shapes}


class _Procedural(NamedTuple):
    name: str
    size: int
    pool: range

    def prepare(self, variant: int) -> None:
        """Nothing to load."""

    def picture(self, variant: int, t: int) -> Pixels:
        return picture(self.name, variant, t, self.size)


class _Recorded(NamedTuple):
    """Clips that are already there; one that has ended begins again."""

    name: str
    pool: range
    clip: Callable[[int], Pixels]

    def prepare(self, variant: int) -> None:
        """Makes it now, not within a step."""
        self.clip(variant)

    def picture(self, variant: int, t: int) -> Pixels:
        clip = self.clip(variant)
        frame: Pixels = clip[t % len(clip)]
        return frame


class _Clip(NamedTuple):
    """A video, or the images of one folder in their order."""

    name: str
    files: tuple[Path, ...]

    def read(self, size: int, limit: int) -> Pixels:
        """[n, 3, size, size] with n at most `limit`."""
        if self.files[0].suffix.lower() in VIDEO_SUFFIXES:
            frames = _video_frames(self.files[0], size, limit)
        else:
            frames = [_image_frame(path, size) for path in self.files[:limit]]
        return np.stack(frames)


class _Video:
    def __init__(self, folder: Path, size: int, split: Split) -> None:
        self._clips, self._size = _clips(folder), size
        last = len(self._clips) - 1
        held_out = {last} if last == 1 else set(range(2, last + 1, 3))
        self.pool = [i for i in range(last + 1) if (i in held_out) == (split == "eval")]
        files = [path for clip in self._clips for path in clip.files]
        sizes = [(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
        digest = sha256(repr(sizes).encode()).hexdigest()[:8]
        self.name = f"video-v1:{folder.resolve().name}({last + 1} clips, {digest})"
        # A clip that cannot be read stops a run when it starts, not hours later.
        for index in self.pool:
            self._clips[index].read(size, limit=1)
        self._loaded, self._frames = -1, np.empty((0, 3, size, size), dtype=np.uint8)

    def prepare(self, variant: int) -> None:
        if variant != self._loaded:
            self._loaded, self._frames = -1, self._frames[:0].copy()  # frees memory for the next
            self._frames = self._clips[variant].read(self._size, MAX_FRAMES)
            self._loaded = variant

    def picture(self, variant: int, t: int) -> Pixels:
        """Forwards and backwards, so that there is no jump at the end of the clip."""
        assert variant == self._loaded
        last = len(self._frames) - 1
        frame: Pixels = self._frames[last - abs(last - t % max(1, 2 * last))]
        return frame


def _clips(folder: Path) -> list[_Clip]:
    """The clips of a folder, in the order of their names."""
    if not folder.is_dir():
        raise ValueError(f"distractor 'video:{folder}' needs a folder; there is none at that path")
    clips = [_Clip(path.name, (path,)) for path in _listed(folder, VIDEO_SUFFIXES)]
    clips += [
        _Clip("" if owner == folder else owner.name, images)
        for owner in (folder, *filter(Path.is_dir, _listed(folder)))
        if (images := _listed(owner, IMAGE_SUFFIXES))
    ]
    if len(clips) < 2:
        present = f"one ({clips[0].files[0].name}…)" if clips else "none"
        raise ValueError(
            f"distractor 'video:{folder}' needs at least two clips, to separate training from "
            f"evaluation, but has {present}; put videos ({', '.join(VIDEO_SUFFIXES)}) or "
            f"subfolders of images ({', '.join(IMAGE_SUFFIXES)}) into it: each is a clip"
        )
    return sorted(clips, key=lambda clip: _by_name(clip.name))


def _listed(folder: Path, suffixes: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The entries of a folder, or its files with these suffixes, by name; none that are hidden."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if suffixes:
        inside = [path for path in inside if path.suffix.lower() in suffixes and path.is_file()]
    return tuple(sorted(inside, key=lambda path: _by_name(path.name)))


def _by_name(name: str) -> tuple[list[tuple[str, int]], str]:
    """The key that sorts names with numbers by value: frame2 comes before frame10."""
    parts = re.findall(r"([^0-9]*)([0-9]*)", name)
    return [(text, int(digits or -1)) for text, digits in parts], name


def _video_frames(path: Path, size: int, limit: int) -> list[Pixels]:
    av = require("av", "video", f"reading the video {path}")
    frames: list[Pixels] = []
    try:
        with av.open(str(path)) as container:
            for frame in container.decode(video=0) if container.streams.video else ():
                frames.append(_square(frame.to_image(), size))
                if len(frames) == limit:
                    break
    except (av.FFmpegError, OSError) as error:
        raise _unreadable(path, error) from None
    if not frames:
        raise _unreadable(path, "it has no images")
    return frames


def _image_frame(path: Path, size: int) -> Pixels:
    pil = require("PIL.Image", "video", f"reading the image {path}")
    try:
        with pil.open(path) as image:
            return _square(image, size)
    except (OSError, SyntaxError, ValueError, EOFError, pil.DecompressionBombError) as error:
        raise _unreadable(path, error) from None


def _square(image: Any, size: int) -> Pixels:
    """The square in the middle of a PIL image, resized to [3, size, size]."""
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    middle = image.crop((left, top, left + side, top + side)).convert("RGB")
    # Bilinear; PIL widens the filter when it shrinks an image, which prevents aliasing.
    small = middle.resize((size, size), resample=2)
    return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1))


def _unreadable(path: Path, reason: object) -> ValueError:
    return ValueError(f"distractor clip {path} cannot be read ({reason}); replace or remove it")


def parse_background(spec: str | None) -> tuple[str, Path | None]:
    """The kind of a moving background, and the folder of a video.

    Raises:
        ValueError: If it is none.
    """
    if not isinstance(spec, str):
        raise ValueError(f"distractor must be one of {', '.join(SPECS)}, got {spec!r:.80}")
    kind, _, rest = spec.partition(":")
    if kind == "video" and not rest.strip():
        raise ValueError(f"distractor {spec!r} names no folder; write video:FOLDER")
    if kind == "video" or spec in BACKGROUNDS:
        return kind, Path(rest).expanduser() if rest else None
    if spec == GAUSSIAN:
        raise ValueError("the distractor gaussian is not a background: use PixelNoise")
    hint = schema.nearest(kind, ("noise", "shapes", INSTANCE, "video", GAUSSIAN))
    raise ValueError(f"distractor must be one of {', '.join(SPECS)}, got {spec!r}{hint}")


def seeded_generator(*entropy: int) -> np.random.Generator:
    """NumPy's PCG64, seeded by these numbers alone."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def normals(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Independent standard Gaussian numbers, by the Box-Muller transform.

    Only random() is used: of NumPy's streams it is the least likely to change.
    """
    radius = np.sqrt(-2.0 * np.log1p(-rng.random(shape)))
    gaussian: Floats = radius * np.cos(2.0 * np.pi * rng.random(shape))
    return gaussian


@cache
def _centres(size: int) -> Floats:
    """The centres of the pixels, where the side is 1."""
    return (np.arange(size) + 0.5) / size


# Entropy of the generators; those of the backgrounds and of `state_noise` have other numbers.
_EPISODES_V1 = 1002
_INTERVALS = 2**16


class PixelNoise:
    """The pixel noise of one environment.

    A seed determines every number of an episode. The splits have the same distribution and
    different random numbers.

    Args:
        strength: Standard deviation as a share of the full range, 255; before clipping.
        size: Side of the image.
        split: "train" or "eval".

    Attributes:
        identity: Kind, version, strength and split.
    """

    def __init__(self, strength: float, size: int, *, split: Split = "train") -> None:
        self.size = size
        self._stream = list(VARIANTS).index(split)
        self.identity = f"{GAUSSIAN}-v1({strength:g})/{split}"
        self._quantiles = quantiles(strength)
        self._draws = -(-3 * size**2 // 4)  # of each frame
        self._bits: np.random.PCG64 | None = None

    def reset(self, seed: int | None) -> None:
        """Starts an episode; a seed restarts the sequence of episodes, None continues it."""
        if seed is not None:
            self._bits = np.random.PCG64(np.random.SeedSequence((_EPISODES_V1, self._stream, seed)))
        elif self._bits is None:
            self._bits = np.random.PCG64()

    def add(self, frame: Pixels) -> None:
        """Adds the noise of one more frame to an image, in place, and clips to 0 to 255."""
        assert frame.shape == (3, self.size, self.size) and frame.dtype == np.uint8
        if self._bits is None:
            raise ValueError("add needs an episode, and none has started: call reset(seed) first")
        # Four numbers of 16 bits from each draw; every machine takes them in the same order.
        draws = np.asarray(self._bits.random_raw(self._draws))
        index = draws.astype("<u8", copy=False).view("<u2")[: frame.size]
        noisy = self._quantiles.take(index).reshape(frame.shape)
        noisy += frame
        frame[...] = noisy.clip(0, 255, out=noisy)

    def skip(self, frames: int) -> None:
        """Passes over the noise of so many frames."""
        assert self._bits is not None, "reset starts an episode"
        self._bits.advance(frames * self._draws)


def check_strength(distractor: str | None, strength: float | None) -> None:
    """Refuses pixel noise without a strength, and a strength without pixel noise.

    Raises:
        ValueError: With what to do.
    """
    if distractor == GAUSSIAN and strength is None:
        raise ValueError(
            "the distractor gaussian needs a distractor_strength: its standard deviation as a "
            "share of the full range, such as 0.2"
        )
    if distractor != GAUSSIAN and strength is not None:
        raise ValueError(
            f"distractor_strength is for the distractor gaussian, but the distractor is "
            f"{distractor}; drop distractor_strength or set distractor to gaussian"
        )


@lru_cache(maxsize=8)
def quantiles(strength: float) -> NDArray[np.int16]:
    """The noise as a table, [65536], read-only: a uniform index gives a Gaussian number.

    Entry i is the quantile at the middle of the i-th of 65,536 equally likely intervals, rounded to
    a whole pixel value. The largest is 4.33 standard deviations; the mean is exactly 0.
    """
    normal = NormalDist(0.0, 255.0 * strength)
    middles = (np.arange(_INTERVALS // 2, _INTERVALS) + 0.5) / _INTERVALS
    upper = np.rint([normal.inv_cdf(middle) for middle in middles.tolist()]).astype(np.int16)
    table = np.concatenate([-upper[::-1], upper])
    table.flags.writeable = False
    return table
