"""Pictures: rendered pages of text and the photographs that two wheels ship."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from trained_nets.texts import words
from trained_nets.wheels import MATPLOTLIB, SCIKIT_IMAGE, SCIKIT_LEARN, Wheels

FONTS = ("DejaVuSans", "DejaVuSerif", "DejaVuSansMono", "DejaVuSans-Bold", "DejaVuSerif-Bold", "STIXGeneral")
PHOTOGRAPHS = (
    (SCIKIT_IMAGE, "skimage/data/astronaut.png"),
    (SCIKIT_LEARN, "sklearn/datasets/images/china.jpg"),
    (SCIKIT_IMAGE, "skimage/data/coffee.png"),
    (SCIKIT_LEARN, "sklearn/datasets/images/flower.jpg"),
    (SCIKIT_IMAGE, "skimage/data/chelsea.png"),
    (SCIKIT_IMAGE, "skimage/data/rocket.jpg"),
    (SCIKIT_IMAGE, "skimage/data/motorcycle_left.png"),
    (SCIKIT_IMAGE, "skimage/data/camera.png"),
    (SCIKIT_IMAGE, "skimage/data/hubble_deep_field.jpg"),
    (SCIKIT_IMAGE, "skimage/data/coins.png"),
)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALVES = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Style:
    """How pages are set.

    Attributes:
        fonts: One of them per page.
        sizes: Least and greatest size of a line, in pixels.
        paper, ink: Least and greatest gray, one per page.
    """

    fonts: tuple[str, ...] = FONTS
    sizes: tuple[int, int] = (16, 34)
    paper: tuple[int, int] = (225, 255)
    ink: tuple[int, int] = (0, 70)


MIXED = Style()
CLEAN = Style(("DejaVuSans", "DejaVuSerif"), (24, 34), (255, 255), (0, 0))


@cache
def font(wheels: Wheels, name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font of matplotlib's wheel."""
    return ImageFont.truetype(str(wheels.file(MATPLOTLIB, f"matplotlib/mpl-data/fonts/ttf/{name}.ttf")), size)


def page(
    wheels: Wheels, seed: int, lines: int = 10, width: int = 900, style: Style = MIXED
) -> tuple[Image.Image, list[str]]:
    """A page of text and its lines: one font, paper and ink per page, sizes that differ from line to line."""
    chance = random.Random(seed)
    name, paper, ink = chance.choice(style.fonts), chance.randint(*style.paper), chance.randint(*style.ink)
    pool, written, rows, top = words(), [], [], 24
    for _ in range(lines):
        face = font(wheels, name, chance.randint(*style.sizes))
        start, text = chance.randrange(len(pool) - 16), ""
        for word in pool[start : start + 16]:
            longer = f"{text} {word}".strip()
            if face.getlength(longer) > width - 60:
                break
            text = longer
        rows.append((top, text, face))
        written.append(text)
        top += int(face.size * 1.25) + chance.randint(8, 20)
    picture = Image.new("RGB", (width, top + 24), (paper, paper, paper - 4))
    draw = ImageDraw.Draw(picture)
    for row, text, face in rows:
        draw.text((30, row), text, font=face, fill=(ink, ink, ink + 10))
    return picture, written


def line(wheels: Wheels, seed: int, height: int = 48) -> Image.Image:
    """One rendered line, `height` pixels high."""
    picture, written = page(wheels, seed, lines=1, width=340 + 60 * (seed % 4))
    box = picture.crop((20, 20, picture.width - 10, picture.height - 24))
    return box.resize((max(8, box.width * height // box.height), height), Image.BILINEAR)


def code(wheels: Wheels, seed: int, size: tuple[int, int]) -> Image.Image:
    """A few large letters and digits over noise, as a captcha shows."""
    chance = random.Random(seed)
    picture = Image.new("RGB", size, tuple(chance.randint(200, 255) for _ in range(3)))
    draw = ImageDraw.Draw(picture)
    for _ in range(5):
        ends = [(chance.randrange(size[0]), chance.randrange(size[1])) for _ in range(2)]
        draw.line(ends, fill=tuple(chance.randint(100, 220) for _ in range(3)), width=1)
    count = chance.randint(4, 6)
    for index in range(count):
        letter = chance.choice("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghkmnpqrstuvwxyz23456789")
        face = font(wheels, chance.choice(FONTS), int(size[1] * chance.uniform(0.5, 0.7)))
        at = (8 + index * (size[0] - 16) // count, chance.randint(2, size[1] // 4))
        draw.text(at, letter, font=face, fill=tuple(chance.randint(0, 120) for _ in range(3)))
    return picture


def seal(wheels: Wheels, seed: int, side: int = 240) -> Image.Image:
    """A round red stamp, its words along the inside of the ring, as offices put it on documents."""
    chance = random.Random(seed)
    red = chance.randint(190, 235), chance.randint(20, 60), chance.randint(20, 70)
    picture = Image.new("RGB", (side, side), (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    draw.ellipse((6, 6, side - 7, side - 7), outline=red, width=5)
    pool = words()
    start = chance.randrange(len(pool) - 3)
    text = " ".join(pool[start : start + 3])[:22].upper()
    face = font(wheels, chance.choice(FONTS), side // 9)
    for index, letter in enumerate(text):
        degrees = 120 - 240 * (index + 0.5) / len(text)  # from the top, to the left
        mask = Image.new("L", (side, side))
        ImageDraw.Draw(mask).text((side / 2, side // 11), letter, font=face, fill=255, anchor="mt")
        picture.paste(red, (0, 0), mask.rotate(degrees, Image.BICUBIC))
    star = font(wheels, "DejaVuSans", side // 4)
    draw.text((side / 2, side / 2), "\N{BLACK STAR}", font=star, fill=red, anchor="mm")
    draw.text((side / 2, side * 0.78), str(chance.randrange(10**6, 10**7)), font=face, fill=red, anchor="mm")
    return picture


def photographs(wheels: Wheels, count: int, seed: int = 0) -> list[Image.Image]:
    """Photographs, and large parts of them."""
    chance, found = random.Random(seed), []
    for index in range(count):
        whole = Image.open(wheels.file(*PHOTOGRAPHS[index % len(PHOTOGRAPHS)])).convert("RGB")
        if index >= len(PHOTOGRAPHS):
            share = chance.uniform(0.5, 0.9)
            width, height = int(whole.width * share), int(whole.height * share)
            left, top = chance.randint(0, whole.width - width), chance.randint(0, whole.height - height)
            whole = whole.crop((left, top, left + width, top + height))
        found.append(whole)
    return found


def puzzle(wheels: Wheels, seed: int) -> Image.Image:
    """A photograph with a piece cut out and a copy of the piece at the left, as puzzles show that a slider solves."""
    chance = random.Random(seed)
    picture = photographs(wheels, 40)[seed % 40].resize((320, 200), Image.BILINEAR)
    side, left, top = 44, chance.randint(100, 260), chance.randint(20, 130)
    piece = picture.crop((left, top, left + side, top + side))
    picture.paste(Image.blend(piece, Image.new("RGB", piece.size, (40, 40, 40)), 0.6), (left, top))
    picture.paste(piece, (10, top))
    return picture


def letterbox(picture: Image.Image, size: int, fill: int, centered: bool = False) -> Image.Image:
    """The picture in a square, scaled to fit."""
    scale = size / max(picture.size)
    small = picture.resize(tuple(max(1, round(extent * scale)) for extent in picture.size), Image.BILINEAR)
    square = Image.new("RGB", (size, size), (fill, fill, fill))
    square.paste(small, ((size - small.width) // 2, (size - small.height) // 2) if centered else (0, 0))
    return square


def planes(picture: Image.Image, scaling=HALVES, bgr: bool = False) -> np.ndarray:
    """1 x 3 x height x width in float32, less a mean and over a deviation."""
    array = np.asarray(picture.convert("RGB"), np.float32) / 255
    if bgr:
        array = array[:, :, ::-1]
    mean, deviation = (np.asarray(side, np.float32) for side in scaling)
    return np.ascontiguousarray(((array - mean) / deviation).transpose(2, 0, 1)[None])


def rotated(picture: Image.Image, turns: int) -> Image.Image:
    """Turned by quarters."""
    return picture.rotate(90 * turns, expand=True)
