"""Blocks and small whole nets of the families that are deployed most."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nets.registry import net


def conv_bn(inside, outside, kernel, stride=1, groups=1, act=None):
    layers = [
        nn.Conv2D(inside, outside, kernel, stride, kernel // 2, groups=groups, bias_attr=False),
        nn.BatchNorm2D(outside),
    ]
    layers[1]._mean.set_value(paddle.randn([outside]) * 0.1)
    layers[1]._variance.set_value(paddle.rand([outside]) + 0.5)
    return nn.Sequential(*layers, *([act] if act else []))


class SqueezeExcite(nn.Layer):
    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2D(1)
        self.down = nn.Conv2D(channels, channels // 4, 1)
        self.up = nn.Conv2D(channels // 4, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.up(F.relu(self.down(self.pool(x)))), slope=0.2, offset=0.5)


@net(x="f32[?1,3,24,24]")
class mobilenet_v3(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 8, 3, 2, act=nn.Hardswish())
        self.blocks = nn.LayerList(
            [
                nn.Sequential(
                    conv_bn(8, 16, 1, act=nn.ReLU()),
                    conv_bn(16, 16, kernel, 1, 16, nn.Hardswish()),
                    SqueezeExcite(16),
                    conv_bn(16, 8, 1),
                )
                for kernel in (3, 5)
            ]
        )
        self.tail = conv_bn(8, 16, 1, act=nn.Hardswish())
        self.out = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        x = F.adaptive_avg_pool2d(self.tail(x), 1).flatten(1)
        return F.softmax(self.out(F.dropout(x, 0.2, training=self.training)))


@net(x="f32[?1,3,?32,?32]")
class ocr_detector(nn.Layer):
    """DB: a backbone, a pyramid whose levels are resized to one another, and a head of transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.stages = nn.LayerList(
            [
                conv_bn(3, 8, 3, 2, act=nn.Hardswish()),
                conv_bn(8, 8, 3, 2, act=nn.ReLU()),
                conv_bn(8, 12, 3, 2, act=nn.ReLU()),
            ]
        )
        self.sides = nn.LayerList([nn.Conv2D(channels, 8, 1, bias_attr=False) for channels in (8, 8, 12)])
        self.excite = SqueezeExcite(8)
        self.head = nn.Sequential(
            conv_bn(24, 6, 3, act=nn.ReLU()), nn.Conv2DTranspose(6, 6, 2, 2), nn.BatchNorm2D(6), nn.ReLU()
        )

    def forward(self, x):
        found = []
        y = x
        for stage in self.stages:
            y = stage(y)
            found.append(y)
        sides = [self.excite(side(level)) for side, level in zip(self.sides, found)]
        sides[1] = sides[1] + F.upsample(sides[2], scale_factor=2, mode="nearest", align_mode=1)
        sides[0] = sides[0] + F.upsample(sides[1], scale_factor=2, mode="nearest", align_mode=1)
        levels = [F.upsample(side, size=paddle.shape(sides[0])[2:], mode="bilinear") for side in sides]
        maps = self.head(paddle.concat(levels, 1))
        return F.sigmoid(maps.max(1, keepdim=True))


@net(x="f32[?2,3,16,?40]")
class crnn(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            conv_bn(3, 8, 3, (2, 1), act=nn.ReLU()),
            conv_bn(8, 12, 3, (2, 2), act=nn.Hardswish()),
            nn.MaxPool2D((4, 2), (4, 2)),
        )
        self.rnn = nn.LSTM(12, 6, num_layers=2, direction="bidirectional")
        self.out = nn.Linear(12, 9)

    def forward(self, x):
        x = self.conv(x)
        assert x.shape[2] == 1
        x, _ = self.rnn(x.squeeze(2).transpose([0, 2, 1]))
        x = F.softmax(self.out(x), axis=2)
        return x, x.argmax(-1), x.max(-1)


@net(x="f32[?2,3,16,32]")
class svtr(nn.Layer):
    """Overlapping patches, local and global mixing, merging, and a head for CTC."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Sequential(conv_bn(3, 4, 3, 2, act=nn.GELU()), conv_bn(4, 8, 3, 2, act=nn.GELU()))
        self.place = self.create_parameter([1, 32, 8], default_initializer=nn.initializer.TruncatedNormal(std=0.02))
        self.norms = nn.LayerList([nn.LayerNorm(8, epsilon=1e-6) for _ in range(4)])
        self.qkv = nn.LayerList([nn.Linear(8, 24) for _ in range(2)])
        self.mlps = nn.LayerList([nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)) for _ in range(2)])
        self.merge = nn.Conv2D(8, 12, 3, [2, 1], 1)
        self.out = nn.Linear(12, 7)
        near = paddle.ones([32, 4 + 2, 8 + 2])
        for row in range(4):
            for column in range(8):
                near[row * 8 + column, row : row + 3, column : column + 3] = 0.0
        self.mask = paddle.where(
            near[:, 1:5, 1:9].flatten(1) < 1, paddle.zeros([32, 32]), paddle.full([32, 32], float("-inf"))
        ).unsqueeze([0, 1])

    def mix(self, x, at, mask):
        qkv = self.qkv[at](x).reshape((0, -1, 3, 2, 4)).transpose((2, 0, 3, 1, 4))
        q, k, v = qkv[0] * 0.5, qkv[1], qkv[2]
        scores = q.matmul(k.transpose((0, 1, 3, 2)))
        scores = F.softmax(scores if mask is None else scores + mask, axis=-1)
        return scores.matmul(v).transpose((0, 2, 1, 3)).reshape((0, -1, 8))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose((0, 2, 1)) + self.place
        for at, mask in enumerate((self.mask, None)):
            x = x + self.mix(self.norms[2 * at](x), at, mask)
            x = x + self.mlps[at](self.norms[2 * at + 1](x))
        x = self.merge(x.transpose([0, 2, 1]).reshape([0, 8, 4, 8]))
        x = F.avg_pool2d(x, [x.shape[2], 2]).squeeze(2).transpose([0, 2, 1])
        return F.softmax(self.out(x), axis=2)


@net(x="f32[?1,3,32,32]")
class hgnet(nn.Layer):
    """PP-HGNetV2 and PP-LCNet as in PP-OCRv4 to v6: light convolutions, aggregation, learned affine blocks, and
    reparameterized ones.
    """

    def __init__(self):
        super().__init__()
        self.first = conv_bn(3, 8, 3, 2, act=nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2D(8, 4, 2), nn.BatchNorm2D(4), nn.ReLU(), nn.Conv2D(4, 8, 2))
        self.light = nn.LayerList(
            [nn.Sequential(conv_bn(width, 6, 1), conv_bn(6, 6, 5, groups=6, act=nn.ReLU())) for width in (16, 6, 6)]
        )
        self.squeeze = conv_bn(16 + 18, 12, 1, act=nn.ReLU())
        self.scale = self.create_parameter([1], default_initializer=nn.initializer.Constant(1.2))
        self.bias = self.create_parameter([1], default_initializer=nn.initializer.Constant(-0.1))
        self.parts = nn.LayerList([conv_bn(12, 12, 3, (2, 1), 12), conv_bn(12, 12, 1, (2, 1), 12)])
        self.out = nn.Linear(12, 4)

    def forward(self, x):
        x = self.first(x)
        pooled = F.max_pool2d(F.pad(x, [0, 1, 0, 1]), 2, 1, ceil_mode=True)
        branch = F.pad(self.branch(F.pad(x, [0, 1, 0, 1])), [0, 1, 0, 1])
        outputs = [paddle.concat([pooled, branch], 1)]
        for layer in self.light:
            outputs.append(layer(outputs[-1]))
        x = self.scale * F.hardswish(self.squeeze(paddle.concat(outputs, 1))) + self.bias
        x = sum(part(x) for part in self.parts)
        x = F.avg_pool2d(x, [3, 2]) if self.training else F.adaptive_avg_pool2d(x, [1, 8])
        return self.out(x.squeeze(2).transpose([0, 2, 1]))


@net(ids="i64[?2,?7]<20", kinds="i64[?2,?7]<2")
class ernie(nn.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds, self.tasks = (nn.Embedding(count, 8) for count in (20, 32, 2, 3))
        self.norm = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.1)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", act_dropout=0.0), 2
        )
        self.pooler, self.out = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, ids, kinds):
        mask = paddle.unsqueeze((ids == 0).astype("float32") * -1e4, axis=[1, 2])
        ones = paddle.ones_like(ids, dtype="int64")
        places = paddle.cumsum(ones, axis=1) - ones
        x = self.words(ids) + self.places(places) + self.kinds(kinds) + self.tasks(paddle.zeros_like(ids))
        x = self.encoder(self.drop(self.norm(x)), src_mask=mask)
        return x, self.out(paddle.tanh(self.pooler(x[:, 0])))


@net(x="f32[?1,3,?16,?16]")
class unet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.down = nn.LayerList([conv_bn(inside, outside, 3, act=nn.ReLU()) for inside, outside in ((3, 6), (6, 12))])
        self.middle = conv_bn(12, 12, 3, act=nn.Mish())
        self.up = nn.LayerList([nn.Conv2DTranspose(12, 12, 2, 2), nn.Conv2DTranspose(6, 6, 2, 2)])
        self.merge = nn.LayerList([conv_bn(24, 6, 3, act=nn.LeakyReLU()), conv_bn(12, 4, 3, act=nn.ReLU())])

    def forward(self, x):
        kept = []
        for layer in self.down:
            x = layer(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for layer, merge in zip(self.up, self.merge):
            x, other = layer(x), kept.pop()
            rows, columns = other.shape[2] - x.shape[2], other.shape[3] - x.shape[3]
            x = F.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])
            x = merge(paddle.concat([other, x], 1))
        return x.argmax(1), F.softmax(x, 1)


@net(x="f32[?1,3,8,8]")
class swin(nn.Layer):
    """Attention in shifted windows with a table of relative positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2D(3, 8, 1)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.table = self.create_parameter([49, 2], default_initializer=nn.initializer.Normal())
        axis = paddle.arange(4)
        places = paddle.stack(paddle.meshgrid(axis, axis)).flatten(1)
        offset = (places.unsqueeze(2) - places.unsqueeze(1)).transpose([1, 2, 0]) + 3
        self.register_buffer("index", offset[..., 0] * 7 + offset[..., 1])

    def forward(self, x):
        x = paddle.roll(self.embed(x).transpose([0, 2, 3, 1]), [-2, -2], [1, 2])
        windows = x.reshape([-1, 2, 4, 2, 4, 8]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 16, 8])
        q, k, v = self.qkv(windows).reshape([-1, 16, 3, 2, 4]).transpose([2, 0, 3, 1, 4]).unbind(0)
        bias = paddle.index_select(self.table, self.index.flatten()).reshape([16, 16, 2]).transpose([2, 0, 1])
        scores = F.softmax(q @ k.transpose([0, 1, 3, 2]) * 0.5 + bias.unsqueeze(0), -1)
        y = self.out((scores @ v).transpose([0, 2, 1, 3]).reshape([-1, 16, 8]))
        y = y.reshape([-1, 2, 2, 4, 4, 8]).transpose([0, 1, 3, 2, 4, 5]).reshape([-1, 8, 8, 8])
        return paddle.roll(y, [2, 2], [1, 2])


@net(x="f32[?1,3,16,24]")
class rectifier(nn.Layer):
    """TPS: control points by a small net, a grid by fixed matrices, and sampling at it."""

    def __init__(self):
        super().__init__()
        self.conv = conv_bn(3, 6, 3, 2, act=nn.ReLU())
        self.points = nn.Linear(6, 12)
        self.inverse = self.create_parameter([9, 9], default_initializer=nn.initializer.Normal(std=0.2))
        self.grid = self.create_parameter([8 * 12, 9], default_initializer=nn.initializer.Normal(std=0.2))

    def forward(self, x):
        found = self.points(F.adaptive_avg_pool2d(self.conv(x), 1).reshape([-1, 6])).reshape([-1, 6, 2])
        found = paddle.concat([found, paddle.zeros([found.shape[0], 3, 2])], axis=1)
        grid = paddle.matmul(self.grid, paddle.matmul(self.inverse, found))
        return F.grid_sample(x, grid.reshape([-1, 8, 12, 2]))


@net(x="f32[?2,8]", ids="i64[?2]<4", flag="b[?2]")
class many_outputs(nn.Layer):
    """Weights that are shared, an input that is an output, and results of every type."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(8, 8)
        self.words = nn.Embedding(4, 8)

    def forward(self, x, ids, flag):
        y = self.shared(self.shared(x)) + self.words(ids)
        return {"same": x, "y": y, "twice": [y, y + F.linear(x, self.shared.weight.T)], "flag": ~flag, "ids": ids + 1}


@net(x="f32[?1,3,16,16]")
class half(nn.Layer):
    """Parts in float16, as left by automatic mixed precision."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        y = F.relu(self.first(x)).astype("float16").astype("float32")
        z = (y.mean([2, 3]).astype("float16") * 0.5 + 0.25).astype("float32")
        return self.out(z), z.astype("float16")


@net(x="f32[?1,6,8,8]")
class shuffle_net(nn.Layer):
    """Channels that are split and shuffled, ghost features, coordinate attention."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(
            conv_bn(3, 3, 1, act=nn.ReLU()), conv_bn(3, 3, 3, groups=3), conv_bn(3, 3, 1, act=nn.ReLU())
        )
        self.cheap = conv_bn(6, 6, 3, groups=6, act=nn.ReLU6())
        self.mix = nn.Conv2D(12, 4, 1)
        self.rows, self.columns = nn.Conv2D(4, 12, 1), nn.Conv2D(4, 12, 1)

    def forward(self, x):
        left, right = x[:, :3], x[:, 3:]
        x = F.channel_shuffle(paddle.concat([left, self.branch(right)], 1), 2)
        x = paddle.concat([x, self.cheap(x)], 1)
        rows = F.adaptive_avg_pool2d(x, [None, 1])
        columns = F.adaptive_avg_pool2d(x, [1, None]).transpose([0, 1, 3, 2])
        both = F.hardswish(self.mix(paddle.concat([rows, columns], 2)))
        rows, columns = paddle.split(both, [8, 8], 2)
        return x * F.sigmoid(self.rows(rows)) * F.sigmoid(self.columns(columns.transpose([0, 1, 3, 2])))
