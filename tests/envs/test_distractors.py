import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from revbis.envs import distractors
from revbis.envs.distractors import VARIANTS, Distractor, picture
from revbis.io import plugins

KINDS = ("noise-v1", "shapes-v1")
EVERYWHERE = np.ones((16, 16), dtype=bool)


def played(distractor, frames):
    """What the distractor paints over the next frames, [frames, 3, size, size]."""
    size = distractor.size
    out = np.zeros((frames, 3, size, size), dtype=np.uint8)
    for frame in out:
        distractor.paint(frame, np.ones((size, size), dtype=bool))
    return out


def episodes(distractor, seed, count=12):
    """The variants and first frames of a seed's episodes."""
    shown = []
    for number in range(count):
        distractor.reset(seed if number == 0 else None)
        shown.append((distractor.variant, played(distractor, 2).tobytes()))
    return shown


def shrunk(pixels, size):
    """[3, S, S] by the mean over each of size × size equal boxes."""
    image = Image.fromarray(pixels.transpose(1, 2, 0))
    return np.asarray(image.resize((size, size), Image.Resampling.BOX)).astype(int)


# ---- procedural pictures


@pytest.mark.parametrize("kind", KINDS)
@given(variant=st.integers(0, 89), t=st.integers(0, 20_000), size=st.sampled_from([1, 7, 64, 84]))
def test_a_picture_is_a_pure_function(kind, variant, t, size):
    first = picture(kind, variant, t, size)
    kept = first.copy()
    first[...] = 0
    distractors._noise_of.cache_clear()
    distractors._shapes_of.cache_clear()
    picture(kind, variant, t + 1, size)
    assert kept.shape == (3, size, size) and kept.dtype == np.uint8
    np.testing.assert_array_equal(picture(kind, variant, t, size), kept)


# What version 1 shows, so that nobody changes it without a new version: means over a 2 × 2 grid,
# [row, column, colour], of variant 3 at time 1234, read off the pictures of the first release.
PINNED = {
    "noise-v1": [[[175, 119, 117], [113, 110, 149]], [[166, 167, 171], [141, 78, 170]]],
    "shapes-v1": [[[146, 104, 156], [129, 82, 97]], [[126, 105, 150], [131, 98, 108]]],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_version_does_not_change(kind):
    np.testing.assert_allclose(shrunk(picture(kind, 3, 1234, 64), 2), PINNED[kind], atol=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", [0, 17, 60, 89])
def test_the_layout_does_not_depend_on_the_size(kind, variant):
    small, large = (shrunk(picture(kind, variant, 50, size), 16) for size in (64, 84))
    other = shrunk(picture(kind, variant + 1 if variant < 89 else 0, 50, 84), 16)
    # Edges of shapes fall on whole pixels, so boxes that an edge crosses differ somewhat.
    assert np.abs(small - large).mean() < 6
    assert np.abs(small - other).mean() > 30


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_of_every_variant_moves_without_a_jump(kind):
    for variant in range(90):
        frames = np.stack([picture(kind, variant, t, 84) for t in range(40)]).astype(int)
        step = np.abs(np.diff(frames, axis=0)).mean(axis=(1, 2, 3))
        assert step.min() > 0.5
        assert step.max() < 25
        # Within forty frames much more has changed than from one to the next.
        assert np.abs(frames[-1] - frames[0]).mean() > 4 * step.mean()


@pytest.mark.parametrize("variant", range(0, 90, 9))
def test_noise_is_colourful_and_smooth(variant):
    pixels = picture("noise-v1", variant, 300, 84).astype(int)
    assert pixels.std() > 35
    assert (pixels.max(axis=0) - pixels.min(axis=0)).mean() > 50
    # The steepest step: 254 over one of at most 7 cells, where smoothstep climbs 1.5 times.
    steepest = 254 * 1.5 * 7 / 84
    assert max(np.abs(np.diff(pixels, axis=axis)).max() for axis in (1, 2)) <= steepest + 1


def test_noise_goes_round_without_a_seam():
    # On a torus the last row is as near to the first as to the one before it.
    pixels = picture("noise-v1", 5, 77, 84).astype(int)
    steepest = 254 * 1.5 * 7 / 84 + 1
    assert np.abs(pixels[:, 0] - pixels[:, -1]).max() <= steepest
    assert np.abs(pixels[:, :, 0] - pixels[:, :, -1]).max() <= steepest


def test_noise_drifts():
    # In nine frames the picture is more like itself moved along than like itself in place.
    moved = in_place = 0.0
    for variant in range(20):
        drift = distractors._noise_of(variant).drift
        cells = distractors._noise_of(variant).phase.shape[-1]
        shift = np.round(-9 * drift / cells * 84).astype(int)
        before, after = (picture("noise-v1", variant, t, 84).astype(int) for t in (100, 109))
        moved += np.abs(np.roll(before, shift, axis=(1, 2)) - after).mean()
        in_place += np.abs(before - after).mean()
    assert moved < 0.9 * in_place


@pytest.mark.parametrize("variant", range(0, 90, 9))
def test_shapes_are_the_union_of_discs_and_rectangles_drawn_in_order(variant):
    """Against the slow way: every pixel asks every shape, the last one wins."""
    shapes, size, t = distractors._shapes_of(variant), 20, 431
    got = picture("shapes-v1", variant, t, size)
    assert any(shapes.round) and not all(shapes.round)
    for row in range(size):
        for column in range(size):
            colour = 0
            for shape, is_disc in enumerate(shapes.round):
                # A centre walks on a line, and folding the line at whole numbers is a bounce.
                walked = shapes.start[:, shape] + shapes.pace[:, shape] * t
                centre = np.where(np.floor(walked) % 2 == 0, walked % 1, 1 - walked % 1)
                off = np.array([(row + 0.5) / size, (column + 0.5) / size]) - centre
                half = shapes.half[:, shape]
                inside = np.hypot(*off) <= half[0] if is_disc else np.all(np.abs(off) <= half)
                colour = shape + 1 if inside else colour
            assert got[:, row, column].tolist() == shapes.palette[:, colour].tolist()


# ---- variants, splits and seeds


def test_the_pools_of_the_splits():
    assert {"train": range(60), "eval": range(60, 90)} == VARIANTS


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_variants_look_alike(kind):
    looks = np.stack([shrunk(picture(kind, variant, 0, 84), 12) for variant in range(90)])
    apart = np.abs(looks[:, None] - looks[None]).mean(axis=(2, 3, 4))
    assert apart[~np.eye(90, dtype=bool)].min() > 15


@pytest.mark.parametrize("spec", ["noise", "shapes"])
@pytest.mark.parametrize("split", ["train", "eval"])
def test_episodes_show_all_variants_of_their_split_only(spec, split):
    distractor = Distractor(spec, 8, split=split)
    seen = set()
    for number in range(900):
        distractor.reset(5 if number == 0 else None)
        seen.add(distractor.variant)
    assert seen == set(VARIANTS[split])


@pytest.mark.parametrize("spec", ["noise", "shapes"])
def test_a_seed_settles_the_episodes(spec):
    first = Distractor(spec, 16)
    shown = episodes(first, 7)
    assert episodes(Distractor(spec, 16), np.int64(7)) == shown
    assert episodes(first, 7) == shown  # also after other episodes
    assert episodes(first, 8) != shown
    assert len({variant for variant, _ in shown}) > 5


def test_without_a_seed_episodes_go_on_and_differ_between_runs():
    one, two = Distractor("noise", 16), Distractor("noise", 16)
    assert episodes(one, None) != episodes(two, None)


def test_the_global_random_state_plays_no_part():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    shown = episodes(Distractor("shapes", 16), 3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    assert episodes(Distractor("shapes", 16), 3) == shown


def test_an_episode_starts_at_its_own_moment_and_time_goes_on_by_one():
    distractor = Distractor("shapes", 16)
    starts = set()
    for seed in range(10):
        distractor.reset(seed)
        start = distractor._time
        starts.add(start)
        wanted = [picture("shapes-v1", distractor.variant, start + t, 16) for t in range(5)]
        np.testing.assert_array_equal(played(distractor, 5), wanted)
    assert len(starts) == 10


def test_a_distractor_survives_pickling_in_the_middle_of_an_episode():
    distractor = Distractor("noise", 16)
    distractor.reset(1)
    played(distractor, 3)
    copy = pickle.loads(pickle.dumps(distractor))
    np.testing.assert_array_equal(played(copy, 3), played(distractor, 3))
    assert episodes(copy, None) == episodes(distractor, None)


# ---- painting


@pytest.mark.parametrize("spec", ["noise", "shapes"])
def test_paint_touches_only_what_is_behind(spec):
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 256, (3, 84, 84), dtype=np.uint8)
    background_mask = rng.random((84, 84)) < 0.5
    kept, mask = frame.copy(), background_mask.copy()
    distractor = Distractor(spec, 84)
    distractor.reset(0)
    wanted = picture(f"{spec}-v1", distractor.variant, distractor._time, 84)
    assert distractor.paint(frame, background_mask) is None
    np.testing.assert_array_equal(frame[:, ~mask], kept[:, ~mask])
    np.testing.assert_array_equal(frame[:, mask], wanted[:, mask])
    np.testing.assert_array_equal(background_mask, mask)


def test_paint_takes_a_view_into_a_stack_of_frames():
    stack = np.zeros((9, 16, 16), dtype=np.uint8)
    distractor = Distractor("noise", 16)
    distractor.reset(0)
    distractor.paint(stack[3:6], EVERYWHERE)
    assert stack[3:6].all() and not stack[:3].any() and not stack[6:].any()


# ---- folders of clips


def gray(value, size=(16, 16)):
    return Image.new("RGB", size, (value, value, value))


def image_clip(folder, levels, suffix="png"):
    """Writes a clip whose frames are gray levels."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, level in enumerate(levels):
        gray(level).save(folder / f"{number}.{suffix}")


def video_clip(path, levels, size=(64, 48)):
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        stream.bit_rate = 4_000_000
        for level in levels:
            frame = av.VideoFrame.from_image(gray(level, size))
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def pools(folder):
    return [
        Distractor(f"video:{folder}", 8, split=split)._source.pool for split in ("train", "eval")
    ]


@pytest.mark.parametrize(
    ("count", "train", "held_out"),
    [
        (2, [0], [1]),
        (3, [0, 1], [2]),
        (4, [0, 1, 3], [2]),
        (7, [0, 1, 3, 4, 6], [2, 5]),
    ],
)
def test_every_third_clip_is_for_evaluation(tmp_path, count, train, held_out):
    for number in range(count):
        image_clip(tmp_path / f"clip{number}", [number])
    assert pools(tmp_path) == [train, held_out]


def test_clips_and_frames_are_in_the_order_of_their_names(tmp_path):
    # Numbers by value: clip 10 comes after clip 9, and so do frames.
    for number in (10, 9, 1):
        image_clip(tmp_path / f"clip{number}", range(12 * number, 12 * number + 12), "jpg")
    distractor = Distractor(f"video:{tmp_path}", 4, split="eval")
    distractor.reset(0)
    distractor._time = 0
    assert distractor.variant == 2
    assert played(distractor, 12)[:, 0, 0, 0].tolist() == list(range(120, 132))


def test_a_clip_is_played_forth_and_back(tmp_path):
    image_clip(tmp_path / "a", [10, 20, 30, 40])
    image_clip(tmp_path / "b", [90])
    distractor = Distractor(f"video:{tmp_path}", 4)
    distractor.reset(0)
    distractor._time = 0
    seen = played(distractor, 14)[:, 0, 0, 0].tolist()
    assert seen == [10, 20, 30, 40, 30, 20, 10, 20, 30, 40, 30, 20, 10, 20]


def test_a_clip_of_one_frame_stands_still(tmp_path):
    image_clip(tmp_path / "a", [10])
    image_clip(tmp_path / "b", [90])
    distractor = Distractor(f"video:{tmp_path}", 4)
    distractor.reset(0)
    assert set(played(distractor, 3).flat) == {10}


def test_images_in_the_folder_itself_are_a_clip_and_hidden_files_are_not(tmp_path):
    image_clip(tmp_path, [10, 20])
    image_clip(tmp_path / "later", [90], "JPEG")
    image_clip(tmp_path / ".hidden", [200])
    (tmp_path / "later" / "._0.png").write_bytes(b"left by a Mac")
    (tmp_path / "notes.txt").write_text("not a clip")
    (tmp_path / "empty").mkdir()
    (tmp_path / "folder.mp4").mkdir()
    distractor = Distractor(f"video:{tmp_path}", 4)
    distractor.reset(0)
    assert "(2 clips, " in distractor.identity
    assert set(played(distractor, 3).flat) == {10, 20}


def test_frames_are_cropped_to_the_square_in_the_middle(tmp_path):
    wide = Image.new("RGB", (60, 20), (255, 0, 0))
    wide.paste((0, 80, 160), (20, 0, 40, 20))
    tall = wide.transpose(Image.Transpose.ROTATE_90)
    for name, image in (("a", wide), ("b", tall)):
        (tmp_path / name).mkdir()
        image.save(tmp_path / name / "0.png")
    for split in ("train", "eval"):
        distractor = Distractor(f"video:{tmp_path}", 10, split=split)
        distractor.reset(0)
        frame = played(distractor, 1)[0]
        np.testing.assert_array_equal(frame, np.broadcast_to([[[0]], [[80]], [[160]]], (3, 10, 10)))


def test_frames_are_shrunk_without_aliasing(tmp_path):
    stripes = np.zeros((160, 160, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    stripes[:80] //= 2
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(stripes).save(tmp_path / name / "0.png")
    distractor = Distractor(f"video:{tmp_path}", 16)
    distractor.reset(0)
    frame = played(distractor, 1)[0].astype(int)
    # Half of the columns are black: the mean, dim above and bright below.
    assert np.abs(frame[:, :7] - 64).max() <= 8
    assert np.abs(frame[:, 9:] - 128).max() <= 14


def test_only_the_first_frames_of_a_long_clip_are_read(tmp_path, monkeypatch):
    assert distractors.MAX_FRAMES == 1000
    monkeypatch.setattr(distractors, "MAX_FRAMES", 3)
    image_clip(tmp_path / "a", [10, 20, 30, 40, 50])
    video_clip(tmp_path / "b.mp4", [10, 60, 110, 160, 210])
    for split in ("train", "eval"):
        distractor = Distractor(f"video:{tmp_path}", 4, split=split)
        distractor.reset(0)
        assert distractor._source._frames.shape == (3, 3, 4, 4)


def test_the_last_clip_stays_in_memory_and_only_that_one(tmp_path, monkeypatch):
    for name in "abc":
        image_clip(tmp_path / name, [10, 20])
    distractor = Distractor(f"video:{tmp_path}", 4)
    read, clip_read = [], distractors._Clip.read

    def noted(clip, size, limit):
        assert len(distractor._source._frames) == 0
        read.append(clip.name)
        return clip_read(clip, size, limit)

    monkeypatch.setattr(distractors._Clip, "read", noted)
    shown = []
    for number in range(20):
        distractor.reset(0 if number == 0 else None)
        shown.append("abc"[distractor.variant])
    changes = [name for name, before in zip(shown, [""] + shown, strict=False) if name != before]
    assert 1 < len(changes) < 20
    assert read == changes


def test_a_real_video(tmp_path):
    levels = [20, 60, 100, 140, 180, 220]
    video_clip(tmp_path / "a.mp4", levels)
    video_clip(tmp_path / "b.AVI", levels[::-1])
    for split, wanted in (("train", levels), ("eval", levels[::-1])):
        distractor = Distractor(f"video:{tmp_path}", 12, split=split)
        distractor.reset(0)
        distractor._time = 0
        frames = played(distractor, 11).astype(int)
        np.testing.assert_allclose(frames.mean(axis=(1, 2, 3)), wanted + wanted[-2::-1], atol=6)
        again = Distractor(f"video:{tmp_path}", 12, split=split)
        again.reset(0)
        again._time = 0
        np.testing.assert_array_equal(played(again, 11), frames)


def test_videos_and_images_side_by_side(tmp_path):
    image_clip(tmp_path / "a", [10])
    video_clip(tmp_path / "b.mkv", [100])
    image_clip(tmp_path / "c", [10])
    video_clip(tmp_path / "d.mov", [100])
    assert pools(tmp_path) == [[0, 1, 3], [2]]
    shown = episodes(Distractor(f"video:{tmp_path}", 8), 4)
    assert {variant for variant, _ in shown} == {0, 1, 3}
    assert episodes(Distractor(f"video:{tmp_path}", 8), 4) == shown


def test_the_identity_of_a_folder_tells_folders_apart(tmp_path):
    names = set()
    for place, levels in (("one", [1]), ("two", [1]), ("more", [1, 2])):
        folder = tmp_path / place / "clips"
        image_clip(folder / "a", levels)
        image_clip(folder / "b", [3])
        names.add(Distractor(f"video:{folder}", 8).identity)
    assert len(names) == 2  # the same files in another place are the same background
    assert all(
        re.fullmatch(r"video-v1:clips\(2 clips, [0-9a-f]{8}\)/train", name) for name in names
    )

    bigger = tmp_path / "two" / "clips" / "a" / "0.png"
    bigger.write_bytes(bigger.read_bytes() + b"\0")
    renamed = tmp_path / "one" / "clips" / "a"
    renamed.rename(renamed.with_name("0"))
    for place in ("one", "two"):
        names.add(Distractor(f"video:{tmp_path / place / 'clips'}", 8).identity)
    assert len(names) == 4


def test_a_folder_in_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    image_clip(tmp_path / "clips" / "a", [1])
    image_clip(tmp_path / "clips" / "b", [1])
    assert Distractor("video:~/clips", 8).identity.startswith("video-v1:clips(2 clips")


# ---- folders that cannot be used


def test_a_folder_that_is_not_there(tmp_path):
    folder = tmp_path / "nowhere"
    message = f"distractor 'video:{folder}' needs a folder; there is none at that path"
    with pytest.raises(ValueError, match=re.escape(message)):
        Distractor(f"video:{folder}", 16)
    folder.write_text("a file")
    with pytest.raises(ValueError, match=re.escape(message)):
        Distractor(f"video:{folder}", 16)


@pytest.mark.parametrize(("levels", "present"), [([], "has none;"), ([1, 2], "has one (0.png…);")])
def test_fewer_than_two_clips(tmp_path, levels, present):
    image_clip(tmp_path, levels)
    with pytest.raises(ValueError, match=re.escape(present)) as error:
        Distractor(f"video:{tmp_path}", 16)
    assert "needs at least two clips, to separate training from evaluation" in str(error.value)
    assert "videos (.mp4, .avi, .mkv, .mov) or subfolders of images (.png" in str(error.value)


@pytest.mark.parametrize("name", ["b.mp4", "b/0.png", "b/0.jpg"])
@pytest.mark.parametrize("content", [b"", b"this is no picture"])
def test_a_corrupt_clip_stops_the_run_when_it_starts(tmp_path, name, content):
    image_clip(tmp_path / "a", [1])
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    message = (
        rf"distractor clip {re.escape(str(tmp_path / name))} cannot be read \(.+\); replace or"
    )
    with pytest.raises(ValueError, match=message):
        Distractor(f"video:{tmp_path}", 16, split="eval")
    Distractor(f"video:{tmp_path}", 16, split="train")


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_frame_cut_short(tmp_path, suffix):
    image_clip(tmp_path / "a", [1, 2], suffix)
    image_clip(tmp_path / "b", [1])
    broken = tmp_path / "a" / f"1.{suffix}"
    broken.write_bytes(broken.read_bytes()[:60])
    distractor = Distractor(f"video:{tmp_path}", 16)
    with pytest.raises(ValueError, match=re.escape(f"distractor clip {broken} cannot be read")):
        distractor.reset(0)
    with pytest.raises(ValueError, match=r"call reset\(seed\) first"):
        played(distractor, 1)


def test_a_video_without_pictures(tmp_path):
    import av

    image_clip(tmp_path / "a", [1])
    with av.open(str(tmp_path / "b.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), "s16", "mono")
        sound.rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    with pytest.raises(ValueError, match=r"b\.mkv cannot be read \(it has no images\)"):
        Distractor(f"video:{tmp_path}", 16, split="eval")


def test_a_video_without_pyav(tmp_path, monkeypatch):
    image_clip(tmp_path / "a", [1])
    video_clip(tmp_path / "b.mp4", [1])
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr(plugins, "install_line", "pip install [{}]".format)
    message = r"reading the video .*b\.mp4 needs av, which is not .*pip install \[video\]"
    with pytest.raises(ModuleNotFoundError, match=message):
        Distractor(f"video:{tmp_path}", 16, split="eval")
    Distractor(f"video:{tmp_path}", 16, split="train")  # images do without
