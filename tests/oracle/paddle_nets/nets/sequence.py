"""Recurrent nets, attention, control flow and arrays of tensors."""

import paddle
import paddle.nn as nn
import paddle.nn.functional as F

from nets.registry import net


@net(x="f32[?2,5,4]", lengths="i64[?2]<6")
class lstm_lengths(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 3, num_layers=2, direction="bidirect")

    def forward(self, x, lengths):
        out, (h, c) = self.rnn(x, sequence_length=lengths)
        return out, h, c


@net(x="f32[?2,?5,4]", h="f32[4,?2,3]")
class gru_states(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 3, num_layers=2, direction="bidirect")
        self.plain = nn.GRU(6, 5)

    def forward(self, x, h):
        out, last = self.rnn(x, h)
        return self.plain(out)[0], last


@net(x="f32[5,?2,4]")
class simple_rnn(nn.Layer):
    def __init__(self):
        super().__init__()
        self.tanh = nn.SimpleRNN(4, 3, time_major=True)
        self.relu = nn.SimpleRNN(3, 3, time_major=True, activation="relu", num_layers=2)
        self.lstm = nn.LSTM(3, 4, time_major=True)
        self.projected = nn.LSTM(4, 6, proj_size=3, time_major=True)

    def forward(self, x):
        out, h = self.tanh(x)
        out, h2 = self.relu(out)
        out, (h3, c3) = self.lstm(out)
        return (self.projected(out)[0], h, h2, h3, c3)


@net(x="f32[2,4,3]")
class cells(nn.Layer):
    def __init__(self):
        super().__init__()
        self.both = nn.BiRNN(nn.LSTMCell(3, 4), nn.LSTMCell(3, 4))
        self.gru = nn.RNN(nn.GRUCell(8, 5), is_reverse=True)
        self.step = nn.SimpleRNNCell(5, 2)

    def forward(self, x):
        out, _ = self.both(x)
        out, last = self.gru(out)
        return out, last, self.step(last)[0]


@net(ids="i64[?2,?6]<9", kinds="i32[?2,?6]<2")
class embeddings(nn.Layer):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 6, padding_idx=0)
        self.kinds = nn.Embedding(2, 6)
        self.places = nn.Embedding(16, 6)
        self.norm = nn.LayerNorm(6)
        self.out = nn.Linear(6, 9, bias_attr=False)

    def forward(self, ids, kinds):
        places = paddle.cumsum(paddle.ones_like(ids), -1) - 1
        x = self.norm(self.words(ids) + self.kinds(kinds) + self.places(places))
        return self.out(x), paddle.matmul(x, self.words.weight, transpose_y=True)


@net(x="f32[?2,5,8]", memory="f32[?2,7,8]", mask="b[?2,1,5,7]")
class attention(nn.Layer):
    def __init__(self):
        super().__init__()
        self.own = nn.MultiHeadAttention(8, 2)
        self.cross = nn.MultiHeadAttention(8, 4, need_weights=True)

    def forward(self, x, memory, mask):
        y = self.own(x, x, x, None)
        z, weights = self.cross(y, memory, memory, mask)
        return y, z, weights


@net(q="f32[?2,5,2,4]", k="f32[?2,7,2,4]", v="f32[?2,7,2,4]", mask="f32[1,1,5,7]")
def dot_product_attention(q, k, v, mask):
    return (
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, mask),
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
    )


@net(x="f32[?2,5,8]", y="f32[?2,4,8]")
class transformer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", normalize_before=True), 2, nn.LayerNorm(8)
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12), 1)

    def forward(self, x, y):
        memory = self.encoder(x)
        mask = paddle.triu(paddle.full([4, 4], float("-inf")), 1)
        return memory, self.decoder(y, memory, tgt_mask=mask)


@net(x="f32[?2,4]", flag="b[1]")
class branches(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x, flag):
        if flag:
            y = self.first(x)
            z = y.sum()
        else:
            y = self.second(x) * 2
            z = y.mean()
        if paddle.mean(y) > 0:
            if z > 1:
                y = y - 1
            else:
                y = F.relu(y)
        return y, z


@net(x="f32[?2,4]", n="i64[1]<6")
def loops(x, n):
    i = paddle.zeros([1], dtype="int64")
    total = paddle.zeros_like(x)
    while i < n:
        total = total + x * i.astype("float32")
        if i == 2:
            total = total * 0.5
        i += 1
    steps = 0
    for row in range(x.shape[1]):
        steps = steps + x[:, row].max()
    j = paddle.full([1], 10, dtype="int64")
    while paddle.logical_and(j > 3, total.sum() < 1000):
        j = j - 2
        total = total * 1.5
    return total, i, steps, j


@net(x="f32[?2,?5,4]")
class arrays(nn.Layer):
    """Steps over an open extent, whose results are collected."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 3)

    def forward(self, x):
        state = paddle.zeros([x.shape[0], 3])
        found = []
        for at in range(x.shape[1]):
            out, state = self.cell(x[:, at], state)
            found.append(out)
        return paddle.stack(found, 1), state


@net(x="f32[3,4]")
def array_writes(x):
    array = paddle.tensor.create_array("float32")
    zero, one = paddle.zeros([1], "int64"), paddle.ones([1], "int64")
    array = paddle.tensor.array_write(x, zero, array)
    array = paddle.tensor.array_write(x * 2, one, array)
    i = paddle.full([1], 2, "int64")
    while i < 5:
        before = paddle.tensor.array_read(array, i - 1)
        array = paddle.tensor.array_write(before + x, i, array)
        i = i + 1
    return (
        paddle.tensor.array_read(array, i - 1),
        paddle.tensor.array_length(array),
        paddle.concat([paddle.tensor.array_read(array, zero), x]),
    )


@net(feature="f32[?1,6,8]")
class table_decoder(nn.Layer):
    """Greedy decoding by an attention cell, as in SLANet's and SAR's heads."""

    def __init__(self):
        super().__init__()
        self.i2h = nn.Linear(8, 5, bias_attr=False)
        self.h2h = nn.Linear(5, 5)
        self.score = nn.Linear(5, 1, bias_attr=False)
        self.rnn = nn.GRUCell(8 + 7, 5)
        self.out = nn.Linear(5, 7)
        self.place = nn.Linear(5, 4)

    def forward(self, feature):
        batch = feature.shape[0]
        hidden = paddle.zeros([batch, 5])
        token = paddle.zeros([batch], dtype="int32")
        structure, places = paddle.zeros([batch, 6, 7]), paddle.zeros([batch, 6, 4])
        step = paddle.to_tensor(0)
        while step < 6:
            hot = F.one_hot(token, 7)
            weight = self.score(paddle.tanh(self.i2h(feature) + self.h2h(hidden).unsqueeze(1)))
            context = paddle.matmul(F.softmax(weight, axis=1).transpose([0, 2, 1]), feature).squeeze(1)
            out, hidden = self.rnn(paddle.concat([context, hot], 1), hidden)
            scores = self.out(out)
            token = scores.argmax(-1, dtype="int32")
            structure[:, step, :] = scores
            places[:, step, :] = F.sigmoid(self.place(out))
            step += 1
        return F.softmax(structure, -1), places


@net(ids="i64[1,?3]<9")
class generation(nn.Layer):
    """Tokens that are appended until one says to stop, with rotary positions."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 9)

    def rotate(self, x, angles):
        first, second = x[..., ::2], x[..., 1::2]
        cos, sin = paddle.cos(angles), paddle.sin(angles)
        return paddle.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)

    def forward(self, ids):
        count = paddle.zeros([1], "int32")
        while count < 4:
            x = self.words(ids)
            places = paddle.arange(ids.shape[1]).astype("float32").unsqueeze(-1) / 100.0 ** (
                paddle.arange(0, 8, 2).astype("float32") / 8
            )
            q, k, v = paddle.split(self.qkv(x), 3, -1)
            q, k = self.rotate(q, places), self.rotate(k, places)
            scores = paddle.matmul(q, k, transpose_y=True) / 8**0.5
            scores = scores + paddle.triu(paddle.full_like(scores, -1e9), 1)
            y = paddle.matmul(F.softmax(scores), v)
            following = paddle.argmax(self.out(y[:, -1]), -1, keepdim=True)
            ids = paddle.concat([ids, following], 1)
            count += 1
        return ids
