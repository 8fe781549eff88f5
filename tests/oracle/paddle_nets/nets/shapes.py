"""Operators that move, pick and write elements, and compute with extents."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nets.registry import net


@net(x="f32[?2,3,4,6]")
def reshapes(x):
    a, b = paddle.split(x, [1, -1], axis=1)
    c, d, e = paddle.chunk(x, 3, axis=3)
    parts = paddle.unbind(x, 1)
    return (
        paddle.reshape(x, [0, -1, 8]),
        paddle.flatten(x, 1, 2),
        paddle.flatten(x),
        paddle.squeeze(x[:, :1], 1),
        paddle.unsqueeze(x, [0, -1]),
        paddle.transpose(x, [0, 2, 3, 1]),
        paddle.concat([a, b, a], 1),
        c + d * e,
        paddle.stack(parts, -1),
        paddle.tile(x[:, 0], [2, 1, 3]),
        paddle.tile(x, [2]),
        paddle.expand(a, [-1, 5, 4, 6]),
        paddle.expand_as(a, x),
        paddle.broadcast_to(x[:, :, :1, :1], [2, 3, 4, 6]),
        paddle.moveaxis(x, 1, -1),
        paddle.swapaxes(x, 1, 2),
        paddle.unstack(x, 2)[1],
        paddle.repeat_interleave(x, 2, 1),
        paddle.rot90(x, 1, [2, 3]),
        paddle.unflatten(x, 3, [2, 3]),
        paddle.tensor_split(x, 4, axis=3)[0],
        paddle.hsplit(x, 3)[2],
        paddle.atleast_2d(x[0, 0, 0]),
        x.reshape([x.shape[0], 72]),
        paddle.squeeze(x),
        paddle.crop(x, [1, 2, 2, 3], [0, 1, 1, 2]),
    )


@net(x="f32[?2,4,5]")
def flips(x):
    return (
        paddle.flip(x, [1]),
        paddle.flip(x, [-1, 0]),
        paddle.roll(x, 2, 1),
        paddle.roll(x, [1, -2], [1, 2]),
        paddle.roll(x, 3),
        paddle.rot90(x, 2, [1, 2]),
        paddle.rot90(x, -1, [1, 2]),
        paddle.tril(x),
        paddle.triu(x, 1),
        paddle.tril(x, -1),
        paddle.roll(x, -7, -1),
    )


@net(x="f32[4,5,6]", at="i64[3]<3", m="b[5]")
def slicing(x, at, m):
    return (
        x[1],
        x[-1, 1:],
        x[:, ::2],
        x[:, ::-1],
        x[..., -3:-1],
        x[:, None, 1],
        x[:, 4:1:-2, 1::3],
        x[at],
        x[:, at],
        x[at, at],
        x[:, m],
        x[1:3, at, 2],
        x[..., 0],
        x[:, -100:100],
        paddle.slice(x, [1, 2], [-3, 1], [5, 100]),
        paddle.strided_slice(x, [1, 2], [4, 0], [0, 6], [-2, 4]),
        x[:, [0, 3], [1, 2]],
        x[x > 0.3],
        x[:, 2 : 2 + at.shape[0]],
        x[at[0] : at[0] + 2],
        x[:, at[1]],
        x[[True, False, True, False]],
        x[:, :, at[0] :],
    )


@net(x="f32[?4,5]", y="f32[5]", at="i64[2]<3", m="b[?4,5]")
def writing(x, y, at, m):
    made = []
    for number in range(8):
        z = x + number
        if number == 0:
            z[:, 1] = 3.0
        elif number == 1:
            z[1] = y
        elif number == 2:
            z[::2, 1:4] = y[:3]
        elif number == 3:
            z[at] = y
        elif number == 4:
            z[m] = -1.0
        elif number == 5:
            z[:, ::-2] = 0.5
        elif number == 6:
            z[..., -1:] = x[:, :1]
        else:
            z[1:3, 2] += y[:2]
        made.append(z)
    return made


@net(x="f32[5,4]", i="i64[3]<5", ij="i64[3,2]<4", u="f32[3,4]")
def gathering(x, i, ij, u):
    unique = paddle.to_tensor([3, 0, 2])
    return (
        paddle.gather(x, i),
        paddle.gather(x, ij[:, :1], axis=1),
        paddle.gather_nd(x, ij),
        paddle.index_select(x, i % 4, 1),
        paddle.scatter(x, unique, u),
        paddle.scatter(x, unique, u, overwrite=False),
        paddle.scatter_nd_add(x, ij, u[:, 0]),
        paddle.scatter_nd(ij, u[:, 1], [5, 4]),
        paddle.take(x, ij),
        paddle.index_add(x, i, 0, u),
        paddle.index_fill(x, unique, 0, -2.0),
        paddle.index_put(x, (unique, i % 4), u[:, 0]),
        paddle.multiplex([u, u * 2, u * 3], (i % 3).reshape([3, 1]).astype("int32")),
        paddle.index_sample(u, ij),
        paddle.gather(x, unique, 0),
        paddle.gather(x, i[0]),
        paddle.index_put(x, (i, i % 4), u[:, 0], accumulate=True),
    )


@net(x="f32[3,4,5]", i="i64[3,2,5]<4", j="i64[1,1,2]<5", m="b[3,4,5]", u="f32[3,4,5]")
def along_axes(x, i, j, m, u):
    first = paddle.argsort(x, 1)[:, :2]
    return (
        paddle.take_along_axis(x, i, 1),
        paddle.take_along_axis(x, j, 2),
        paddle.put_along_axis(x, first, 7.0, 1),
        paddle.put_along_axis(x, first, x[:, :2], 1),
        paddle.put_along_axis(x, i, x[:, :2], 1, reduce="add"),
        paddle.masked_fill(x, m, 0.5),
        paddle.masked_select(x, m),
        paddle.where(m, x, u),
        paddle.nonzero(m),
        paddle.masked_scatter(x, m, u),
        paddle.put_along_axis(x, i, x[:, :2], 1, reduce="amax"),
        paddle.take_along_axis(x, first, 1, broadcast=False),
        paddle.put_along_axis(x, i, x[:, :2], 1, reduce="add", include_self=False),
    )


@net(ids="i64[?2,6]<8", lengths="i64[?2]<6", x="f32[?2,6,3]")
def masks(ids, lengths, x):
    mask = F.sequence_mask(lengths, maxlen=6, dtype="float32")
    return (
        F.one_hot(ids, 8),
        mask,
        x * mask.unsqueeze(-1),
        (ids != 0).astype("float32").unsqueeze([1, 2]) * -1e4,
        paddle.triu(paddle.full([6, 6], -1e9), 1),
        F.label_smooth(F.one_hot(ids, 8)),
        paddle.where(ids > 3)[0],
        paddle.masked_fill(x, (ids == 0).unsqueeze(-1), -1.0),
        paddle.arange(6).unsqueeze(0) < lengths.unsqueeze(1),
        F.sequence_mask(lengths),
        paddle.tril(paddle.ones([6, 6], dtype="bool")),
        paddle.zeros_like(x),
        paddle.ones_like(ids, dtype="float32"),
        paddle.full_like(x, 2.5),
        paddle.linspace(0, 1, 5),
        paddle.eye(3, 4),
        paddle.arange(1, 9, 2, dtype="float32"),
        paddle.meshgrid(paddle.arange(3), paddle.arange(4))[1],
        paddle.tril_indices(3, 3, 0),
        paddle.logspace(0, 2, 4),
    )


@net(x="f32[?2,3,5,6]", s="f32[2,3,7]", v="f32[1,2,4,5,6]")
def padding(x, s, v):
    return (
        F.pad(x, [1, 2, 0, 3]),
        F.pad(x, [1, 2, 1, 0], mode="reflect"),
        F.pad(x, [2, 1, 0, 2], mode="replicate"),
        F.pad(x, [1, 3, 2, 0], mode="circular"),
        F.pad(x, [1, 1, 0, 0, 2, 0, 0, 1], value=1.5),
        F.pad(s, [2, 1], mode="reflect", data_format="NCL"),
        F.pad(s, [1, 2], value=-1.0, data_format="NLC"),
        F.pad(v, [1, 0, 2, 1, 0, 1], mode="replicate", data_format="NCDHW"),
        F.pad(v, [1, 1, 0, 2, 1, 0], data_format="NDHWC"),
        F.zeropad2d(x, [1, 0, 2, 1]),
        F.pad(x, [-1, 0, 0, -2]),
        F.pad(x, [1, 2, 2, 1], mode="circular", data_format="NHWC"),
        F.pad(x, paddle.to_tensor([1, 2, 0, 1], dtype="int32")),
    )


@net(x="f32[?2,3,?6,?8]")
def padding_computed(x):
    """Padding to a multiple of 4, as by an image model that divides its input."""
    height, width = x.shape[2], x.shape[3]
    return F.pad(x, [0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4])


@net(x="f32[?2,3,5,6]")
def interpolation(x):
    return (
        F.interpolate(x, size=[8, 9], mode="nearest"),
        F.interpolate(x, scale_factor=2, mode="nearest"),
        F.interpolate(x, scale_factor=[1.5, 2.5], mode="bilinear"),
        F.interpolate(x, size=[3, 4], mode="bilinear"),
        F.interpolate(x, size=[9, 11], mode="bilinear", align_corners=True),
        F.interpolate(x, size=[8, 9], mode="bilinear", align_mode=1),
        F.interpolate(x, size=[7, 9], mode="bicubic"),
        F.interpolate(x, size=[10, 9], mode="bicubic", align_corners=True),
        F.interpolate(x, size=[3, 4], mode="area"),
        F.upsample(x, scale_factor=3, mode="bilinear"),
        F.interpolate(x, size=[4, 5], mode="nearest", align_corners=False),
        F.interpolate(x, size=[1, 1], mode="bilinear", align_corners=True),
        F.interpolate(x, scale_factor=0.6, mode="bilinear"),
        F.interpolate(x, scale_factor=0.7, mode="nearest"),
    )


@net(s="f32[2,3,7]", v="f32[1,2,4,5,6]")
def interpolation_1d_3d(s, v):
    return (
        F.interpolate(s, size=[11], mode="linear", data_format="NCW"),
        F.interpolate(s, scale_factor=2, mode="linear", align_corners=True, data_format="NCW"),
        F.interpolate(v, size=[6, 7, 4], mode="trilinear", data_format="NCDHW"),
        F.interpolate(v, size=[8, 8, 9], mode="nearest", data_format="NCDHW"),
        F.interpolate(v, size=[3, 4, 5], mode="trilinear", align_corners=True, data_format="NCDHW"),
        F.interpolate(s, size=[4], mode="linear", align_mode=1, data_format="NCW"),
    )


@net(x="f32[?1,3,?6,?8]", y="f32[?1,3,?9,?7]", size="i32[2]<9")
def interpolation_computed(x, y, size):
    """To the extents of another tensor, to half of its own, and to those that an input gives."""
    return (
        F.interpolate(x, size=y.shape[2:], mode="bilinear"),
        F.interpolate(x, size=paddle.shape(y)[2:], mode="nearest"),
        F.interpolate(x, size=[y.shape[2] * 2, 5], mode="bicubic"),
        F.interpolate(x, size=size + 3, mode="bilinear"),
        F.interpolate(x, size=[size[0] + 2, size[1] + 4], mode="nearest"),
        F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        F.interpolate(y, scale_factor=paddle.to_tensor([1.5]), mode="bilinear"),
    )


@net(x="f32[?2,?3,4]", y="f32[?2,?5,4]")
def open_extents(x, y):
    batch, count = x.shape[0], x.shape[1]
    shape = paddle.shape(x)
    return (
        paddle.reshape(x, [batch, count * 2, 2]),
        paddle.reshape(x, [-1, 4]),
        paddle.concat([x, y], 1),
        paddle.zeros([batch, count]),
        paddle.expand(x[:, :1], [batch, count, 4]),
        paddle.tile(x[:, :1], [1, count, 1]),
        shape,
        shape[1] * 2,
        paddle.arange(count),
        x.reshape([batch, 1, count, 2, 2]).transpose([0, 2, 1, 3, 4]).flatten(1),
        paddle.matmul(x, y, transpose_y=True),
        x[:, : count // 2],
        x.sum() / count,
        paddle.numel(x),
        paddle.full([count, 2], 3),
        paddle.stack([x[:, 0], y[:, -1]], 0),
        paddle.arange(count).astype("float32").unsqueeze(-1) * paddle.ones([1, 4]),
        paddle.split(x, 2, axis=2)[1],
        paddle.linspace(0, 1, count),
        paddle.eye(count),
        paddle.tril(paddle.ones([count, count])),
        paddle.reshape(x, paddle.concat([shape[:1], paddle.full([1], -1, shape.dtype)])),
    )


@net(x="f32[2,8,4,6]")
class pixels(nn.Layer):
    def __init__(self):
        super().__init__()
        self.shuffle = nn.PixelShuffle(2)
        self.unshuffle = nn.PixelUnshuffle(2)
        self.channels = nn.ChannelShuffle(4)
        self.unfold = nn.Unfold([3, 2], paddings=[1, 0, 1, 1], strides=2)
        self.fold = nn.Fold([4, 6], 2, strides=2)
        self.pad = nn.ZeroPad2D([1, 1, 0, 1])

    def forward(self, x):
        columns = F.unfold(x, 2, strides=2)
        shuffled = paddle.transpose(x.reshape([x.shape[0], 2, 4, 4, 6]), [0, 2, 1, 3, 4]).reshape([-1, 8, 4, 6])
        return (
            self.shuffle(x),
            self.unshuffle(x),
            self.channels(x),
            self.unfold(x),
            self.fold(columns),
            self.pad(x),
            shuffled,
            F.temporal_shift(x[:2], 2, 0.25),
        )


@net(x="f32[2,3,5,6]", grid="f32[2,4,7,2]", theta="f32[2,2,3]")
def sampling(x, grid, theta):
    affine = F.affine_grid(theta, [2, 3, 4, 5], align_corners=True)
    return (
        F.grid_sample(x, grid),
        F.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=False),
        F.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
        affine,
        F.grid_sample(x, affine),
        F.affine_grid(theta, [2, 3, 4, 5], align_corners=False),
        F.grid_sample(x, grid, padding_mode="border"),
        F.grid_sample(x, grid, padding_mode="reflection"),
    )
