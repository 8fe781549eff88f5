"""Convolutions, pooling and normalization."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nets.registry import net


@net(x="f32[?2,3,9,11]")
class conv_paddings(nn.Layer):
    def __init__(self):
        super().__init__()
        self.same = nn.Conv2D(3, 4, 4, stride=2, padding="SAME")
        self.valid = nn.Conv2D(3, 4, 3, padding="VALID", bias_attr=False)
        self.uneven = nn.Conv2D(3, 4, (3, 2), padding=[1, 2, 0, 1])
        self.pairs = nn.Conv2D(3, 4, 3, padding=[[0, 0], [0, 0], [2, 0], [1, 1]])
        self.reflect = nn.Conv2D(3, 4, 3, padding=2, padding_mode="reflect")
        self.circular = nn.Conv2D(3, 4, 3, padding=1, padding_mode="circular")
        self.replicate = nn.Conv2D(3, 4, 5, padding=2, padding_mode="replicate", stride=(2, 3))

    def forward(self, x):
        layers = (self.same, self.valid, self.uneven, self.pairs, self.reflect, self.circular, self.replicate)
        return [layer(x) for layer in layers]


@net(x="f32[2,4,10,8]")
class conv_groups_dilation(nn.Layer):
    def __init__(self):
        super().__init__()
        self.depthwise = nn.Conv2D(4, 8, 3, groups=4, padding=1)
        self.grouped = nn.Conv2D(8, 6, 3, groups=2, dilation=(2, 1), padding=(2, 1))
        self.same = nn.Conv2D(6, 4, 3, dilation=2, padding="SAME")
        self.pointwise = nn.Conv2D(4, 2, 1, stride=2)

    def forward(self, x):
        return self.pointwise(self.same(F.relu6(self.grouped(F.hardswish(self.depthwise(x))))))


@net(x="f32[2,4,5,6]")
class conv_transposed(nn.Layer):
    def __init__(self):
        super().__init__()
        self.plain = nn.Conv2DTranspose(4, 3, 2, stride=2)
        self.extra = nn.Conv2DTranspose(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.dilated = nn.Conv2DTranspose(4, 2, 3, dilation=2, padding=[1, 0])
        self.sized = nn.Conv2DTranspose(4, 2, 3, stride=3)
        self.same = nn.Conv2DTranspose(4, 2, 3, stride=2, padding="SAME")
        self.depthwise = nn.Conv2DTranspose(4, 4, 4, stride=2, padding=1, groups=4)

    def forward(self, x):
        plain, extra = self.plain(x), self.extra(x)
        return plain, extra, self.dilated(x), self.sized(x, output_size=[16, 19]), self.same(x), self.depthwise(x)


@net(x="f32[?2,3,?12,?10]")
class conv_transposed_dynamic(nn.Layer):
    """Extents are open; the size of the result is that of the input."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2D(3, 4, 3, stride=2, padding=1)
        self.up = nn.Conv2DTranspose(4, 2, 3, stride=2, padding=1)
        self.same = nn.Conv2DTranspose(4, 2, 4, stride=2, padding="SAME")

    def forward(self, x):
        small = F.swish(self.down(x))
        return self.up(small, output_size=x.shape[2:]), self.same(small)


@net(signal="f32[2,3,17]", volume="f32[1,2,5,6,7]")
class conv_1d_3d(nn.Layer):
    def __init__(self):
        super().__init__()
        self.line = nn.Conv1D(3, 4, 5, stride=2, padding=2)
        self.same = nn.Conv1D(4, 4, 4, padding="SAME", groups=2)
        self.back = nn.Conv1DTranspose(4, 3, 3, stride=2, output_padding=1, padding=1)
        self.cube = nn.Conv3D(2, 4, 3, padding=(1, 0, 1), stride=(1, 2, 1))
        self.grow = nn.Conv3DTranspose(4, 2, 2, stride=2)

    def forward(self, signal, volume):
        line = self.same(self.line(signal))
        return self.back(line), self.grow(F.elu(self.cube(volume)))


@net(x="f32[?2,9,7,3]")
class channels_last(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(3, 4, 3, padding=[1, 2], data_format="NHWC")
        self.norm = nn.BatchNorm2D(4, data_format="NHWC")
        self.pool = nn.MaxPool2D(3, 2, 1, data_format="NHWC")
        self.up = nn.Conv2DTranspose(4, 4, 2, 2, data_format="NHWC")
        self.group = nn.GroupNorm(2, 4, data_format="NHWC")
        self.prelu = nn.PReLU(4, data_format="NHWC")
        self.norm._mean.set_value(paddle.randn([4]))

    def forward(self, x):
        y = self.up(self.pool(self.prelu(self.norm(self.conv(x)))))
        z = F.interpolate(self.group(y), size=[5, 6], mode="bilinear", data_format="NHWC")
        return y, z, F.adaptive_avg_pool2d(z, [2, 4], data_format="NHWC"), F.avg_pool2d(y, 2, data_format="NHWC")


@net(x="f32[?2,3,9,10]")
def pooling(x):
    indexed, index = F.max_pool2d(x, 2, return_mask=True)
    return (
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, [1, 0], exclusive=False),
        F.avg_pool2d(x, 3, 2, 1, exclusive=False, ceil_mode=True),
        F.avg_pool2d(x, 2, 2, "SAME"),
        F.max_pool2d(x, (3, 2), 2, "SAME"),
        F.avg_pool2d(x, 3, 2, [[0, 0], [0, 0], [0, 1], [1, 0]]),
        F.avg_pool2d(x, 2, divisor_override=3),
        indexed,
        index,
        F.max_unpool2d(indexed, index, 2, output_size=[9, 10]),
    )


@net(x="f32[?2,3,7,11]")
def pooling_adaptive(x):
    return (
        F.adaptive_avg_pool2d(x, [3, 5]),
        F.adaptive_avg_pool2d(x, [None, 4]),
        F.adaptive_max_pool2d(x, [4, 3]),
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_max_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, [1, 4]),
    )


@net(x="f32[?2,3,?9,?11]")
def pooling_adaptive_open(x):
    """One extent of the result is 1, or divides nothing that is known."""
    return F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, [1, 3])


@net(signal="f32[2,3,13]", volume="f32[2,2,5,6,7]")
def pooling_1d_3d(signal, volume):
    return (
        F.max_pool1d(signal, 3, 2, 1, ceil_mode=True),
        F.avg_pool1d(signal, 3, 2, 1, exclusive=False),
        F.adaptive_avg_pool1d(signal, 5),
        F.adaptive_max_pool1d(signal, 4),
        F.lp_pool1d(signal, 2.0, 3, 2),
        F.max_pool3d(volume, 2, 2, ceil_mode=True),
        F.avg_pool3d(volume, (2, 3, 2), 2, 1),
        F.adaptive_avg_pool3d(volume, [2, 3, 4]),
        F.adaptive_max_pool3d(volume, [1, 1, 1]),
    )


@net(x="f32[?2,4,5,6]")
class norms(nn.Layer):
    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm2D(4)
        self.bare = nn.BatchNorm2D(4, weight_attr=False, bias_attr=False)
        self.group = nn.GroupNorm(2, 4)
        self.unscaled = nn.GroupNorm(4, 4, weight_attr=False, bias_attr=False)
        self.instance = nn.InstanceNorm2D(4)
        self.free = nn.InstanceNorm2D(4, weight_attr=False, bias_attr=False)
        self.layer = nn.LayerNorm([5, 6])
        self.last = nn.LayerNorm(6, bias_attr=False)
        self.local = nn.LocalResponseNorm(3)
        self.even = nn.LocalResponseNorm(4)
        for part in (self.batch, self.bare):
            part._mean.set_value(paddle.randn([4]))
            part._variance.set_value(paddle.rand([4]) + 0.5)

    def forward(self, x):
        y = self.unscaled(self.group(self.bare(self.batch(x))))
        z = self.layer(self.free(self.instance(x)))
        return y, z, self.last(x), self.local(x), self.even(x)


@net(x="f32[2,6]", s="f32[2,4,7]", v="f32[2,4,3,4,5]")
class norms_by_rank(nn.Layer):
    def __init__(self):
        super().__init__()
        self.flat = nn.BatchNorm1D(6)
        self.line = nn.BatchNorm1D(4)
        self.cube = nn.BatchNorm3D(4)
        self.single = nn.InstanceNorm1D(4)
        self.volume = nn.InstanceNorm3D(4)
        self.weight = paddle.nn.utils.weight_norm(nn.Linear(6, 5))
        self.spectral = paddle.nn.utils.spectral_norm(nn.Linear(6, 4))
        self.flat._mean.set_value(paddle.randn([6]))

    def forward(self, x, s, v):
        rms = x * paddle.rsqrt(paddle.mean(x.square(), -1, keepdim=True) + 1e-6)
        flat = self.flat(x)
        return self.weight(flat), self.spectral(rms), self.single(self.line(s)), self.volume(self.cube(v))


@net(x="f32[?3,4,5]")
def vector_norms(x):
    return (
        F.normalize(x),
        F.normalize(x, p=1, axis=-1),
        F.cosine_similarity(x, x + 1, axis=2),
        paddle.linalg.norm(x, 2, axis=1),
        paddle.linalg.norm(x, "fro", axis=[1, 2]),
        paddle.linalg.norm(x, float("inf"), axis=1, keepdim=True),
        paddle.linalg.norm(x, float("-inf"), axis=1),
        paddle.linalg.norm(x, 0, axis=1),
        paddle.linalg.norm(x, 3),
        paddle.dist(x, x * 2, 2),
        F.pairwise_distance(x[0], x[1]),
        paddle.cdist(x, x[:, :2] + 1),
    )
