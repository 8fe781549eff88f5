"""Heads of detectors."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F
from paddle import _C_ops
from paddle.base.framework import in_dynamic_or_pir_mode
from paddle.base.layer_helper import LayerHelper
from paddle.vision import ops

from nets.registry import net


def multiclass_nms(boxes, scores, **options):
    """What Paddle's detection libraries call, which `paddle.vision` does not have."""
    values = (
        options.get("score_threshold", 0.05),
        options.get("nms_top_k", 20),
        options.get("keep_top_k", 10),
        options.get("nms_threshold", 0.5),
        options.get("normalized", True),
        options.get("nms_eta", 1.0),
        options.get("background_label", -1),
    )
    if in_dynamic_or_pir_mode():
        out, _, number = _C_ops.multiclass_nms3(boxes, scores, None, *values)
        return out, number
    helper = LayerHelper("multiclass_nms3")
    out = helper.create_variable_for_type_inference("float32")
    index, number = (helper.create_variable_for_type_inference("int32") for _ in range(2))
    names = ("score_threshold", "nms_top_k", "keep_top_k", "nms_threshold", "normalized", "nms_eta", "background_label")
    attrs = dict(zip(names, values))
    helper.append_op(
        type="multiclass_nms3",
        inputs={"BBoxes": boxes, "Scores": scores},
        attrs=attrs,
        outputs={"Out": out, "Index": index, "NmsRoisNum": number},
    )
    return out, number


@net(x="f32[?1,21,4,5]", y="f32[?1,24,4,5]", size="i32[?1,2]<99")
def yolo(x, y, size):
    size = size + 60
    boxes, scores = ops.yolo_box(x, size, [10, 13, 16, 30, 33, 23], 2, 0.3, 16, scale_x_y=1.05)
    more, found = ops.yolo_box(
        y, size, [10, 13, 16, 30, 33, 23], 2, 0.01, 32, clip_bbox=False, iou_aware=True, iou_aware_factor=0.4
    )
    out, number = multiclass_nms(
        paddle.concat([boxes, more], 1), paddle.concat([scores, found], 1).transpose([0, 2, 1]), score_threshold=0.1
    )
    return boxes, scores, more, found, out, number


@net(x="f32[1,4,6,6]", image="f32[1,3,48,48]")
class ssd(nn.Layer):
    def __init__(self):
        super().__init__()
        self.place = nn.Conv2D(4, 16, 3, padding=1)
        self.kind = nn.Conv2D(4, 12, 3, padding=1)

    def forward(self, x, image):
        prior, variance = ops.prior_box(x, image, [8.0], [16.0], [2.0], flip=True, clip=True)
        prior, variance = prior.reshape([-1, 4]), variance.reshape([-1, 4])
        place = self.place(x).transpose([0, 2, 3, 1]).reshape([1, -1, 4])
        scores = F.softmax(self.kind(x).transpose([0, 2, 3, 1]).reshape([1, -1, 3]))
        boxes = ops.box_coder(prior, variance, place, code_type="decode_center_size")
        again = ops.box_coder(
            prior, [0.1, 0.1, 0.2, 0.2], place, code_type="decode_center_size", box_normalized=False, axis=0
        )
        out, number = multiclass_nms(boxes, scores.transpose([0, 2, 1]), background_label=0, score_threshold=0.3)
        return prior, boxes, again, out, number


@net(boxes="f32[?2,12,4]", scores="f32[?2,3,12]")
def nms(boxes, scores):
    low = boxes[..., :2]
    boxes = paddle.concat([low, low + paddle.abs(boxes[..., 2:])], -1)
    scores = F.sigmoid(scores)
    first, count = multiclass_nms(boxes, scores, keep_top_k=7)
    second, number = multiclass_nms(
        boxes * 50, scores, normalized=False, nms_threshold=0.3, keep_top_k=-1, nms_top_k=-1
    )
    kept = ops.nms(boxes[0], 0.4, scores[0, 0])
    return first, count, second, number, kept


@net(boxes="f32[?1,15,4]", scores="f32[?1,3,15]")
def matrix_nms(boxes, scores):
    low = boxes[..., :2]
    boxes = paddle.concat([low, low + paddle.abs(boxes[..., 2:])], -1)
    return ops.matrix_nms(boxes, F.sigmoid(scores), 0.2, 0.1, 10, 8, background_label=-1, return_index=False)


@net(x="f32[2,8,8,9]", boxes="f32[4,4]", number="i32[2]<3")
def regions(x, boxes, number):
    low = paddle.abs(boxes[:, :2])
    boxes = paddle.concat([low, low + 2 + paddle.abs(boxes[:, 2:]) * 3], -1)
    number = number * 0 + 2
    return (
        ops.roi_align(x, boxes, number, (3, 2), 0.8, 2),
        ops.roi_align(x, boxes, number, 2, aligned=False),
        ops.roi_align(x, boxes, number, 2, 0.5, -1),
        ops.roi_pool(x, boxes, number, 2, 0.9),
        ops.psroi_pool(x, boxes, number, 2, 0.7),
    )


@net(x="f32[2,4,6,7]", offset="f32[2,18,6,7]", mask="f32[2,9,6,7]", wide="f32[2,36,3,4]")
class deformable(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = ops.DeformConv2D(4, 3, 3, padding=1)
        self.second = ops.DeformConv2D(4, 6, 3, stride=2, padding=1, deformable_groups=2, groups=2, bias_attr=False)

    def forward(self, x, offset, mask, wide):
        return self.first(x, offset * 0.7), self.first(x, offset, F.sigmoid(mask)), self.second(x, wide)


@net(rois="f32[6,4]", number="i32[2]<3")
def pyramid(rois, number):
    low = paddle.abs(rois[:, :2])
    rois = paddle.concat([low, low + paddle.abs(rois[:, 2:]) * 90], -1)
    multi, restore, counts = ops.distribute_fpn_proposals(rois, 2, 5, 4, 56, rois_num=number * 0 + 3)
    return (*multi, restore, *counts)


@net(image="f32[?1,3,32,32]", scale="f32[?1,2]")
class ppyoloe(nn.Layer):
    """Three levels with ESE attention, distribution focal boxes by a fixed convolution, and NMS."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(3, 8, 3, 4, 1), nn.BatchNorm2D(8), nn.Swish())
        self.down = nn.Conv2D(8, 8, 3, 2, 1)
        self.attention = nn.Conv2D(8, 8, 1)
        self.kinds = nn.Conv2D(8, 3, 3, padding=1)
        self.sides = nn.Conv2D(8, 4 * 5, 3, padding=1)
        self.project = nn.Conv2D(5, 1, 1, bias_attr=False)
        self.project.weight.set_value(paddle.arange(5, dtype="float32").reshape([1, 5, 1, 1]))

    def forward(self, image, scale):
        levels = [self.stem(image)]
        levels.append(self.down(levels[0]))
        levels[0] = levels[0] + F.interpolate(levels[1], scale_factor=2.0)
        points, strides, scores, sides = [], [], [], []
        for x, stride in zip(levels, (4, 8)):
            _, _, h, w = x.shape
            x = x * F.sigmoid(self.attention(F.adaptive_avg_pool2d(x, 1)))
            shift_y, shift_x = paddle.meshgrid(paddle.arange(h) + 0.5, paddle.arange(w) + 0.5)
            points.append(paddle.stack([shift_x, shift_y], -1).cast("float32").reshape([-1, 2]))
            strides.append(paddle.full([h * w, 1], stride, dtype="float32"))
            scores.append(F.sigmoid(self.kinds(x)).reshape([-1, 3, h * w]))
            side = self.sides(x).reshape([-1, 4, 5, h * w]).transpose([0, 2, 3, 1])
            sides.append(self.project(F.softmax(side, 1)).squeeze(1))
        points, strides = paddle.concat(points), paddle.concat(strides)
        sides = paddle.concat(sides, 1)
        low, high = paddle.split(sides, 2, -1)
        boxes = paddle.concat([points - low, points + high], -1) * strides
        factor = paddle.abs(scale) + 1
        boxes = boxes / paddle.concat([factor.flip(-1), factor.flip(-1)], -1).unsqueeze(1)
        out, number = multiclass_nms(boxes, paddle.concat(scores, -1), score_threshold=0.4, keep_top_k=12)
        return boxes, out, number


@net(image="f32[?1,3,?48,?64]", im_shape="f32[?1,2]", scale="f32[?1,2]")
class picodet(nn.Layer):
    """The layout analysis of PP-Structure: depthwise blocks, GFL heads, sizes that are open."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, 8, 1)
        self.deep = nn.Conv2D(8, 8, 5, 2, 2, groups=8)
        self.head = nn.Conv2D(8, 3 + 4 * 4, 1)
        self.steps = self.create_parameter([4], default_initializer=nn.initializer.Assign([0.0, 1.0, 2.0, 3.0]))

    def forward(self, image, im_shape, scale):
        first = F.hardswish(self.stem(image))
        levels = [first, F.hardswish(self.deep(first))]
        boxes, scores = [], []
        for x, stride in zip(levels, (8, 16)):
            shape = paddle.shape(x)
            found = self.head(x).transpose([0, 2, 3, 1])
            kinds, sides = paddle.split(found, [3, 16], -1)
            rows, columns = paddle.meshgrid(
                paddle.arange(shape[2], dtype="float32"), paddle.arange(shape[3], dtype="float32")
            )
            center = paddle.stack([columns.flatten(), rows.flatten()], -1) * stride + stride / 2
            side = (
                F.linear(F.softmax(sides.reshape([-1, 4])), self.steps.unsqueeze(-1)).reshape([image.shape[0], -1, 4])
                * stride
            )
            boxes.append(paddle.concat([center - side[..., :2], center + side[..., 2:]], -1))
            scores.append(F.sigmoid(kinds).reshape([image.shape[0], -1, 3]).transpose([0, 2, 1]))
        boxes = paddle.concat(boxes, 1) / (scale + 3).flip(1).tile([1, 2]).unsqueeze(1) + im_shape.sum() * 0
        out, number = multiclass_nms(boxes, paddle.concat(scores, 2), score_threshold=0.4)
        return boxes, out, number
