"""The states that parts see while a model reads prompts and decodes are those of a generator."""

import numpy as np
import onnxruntime
import pytest
from dovetail_decoder.reading import chain_of, read_folder
from dovetail_decoder.states import batches
from dovetail_decoder.tokens import Prompt

from tests.e2e import generators as nets

pytest.importorskip("tokenizers")


@pytest.mark.parametrize("form", ["two", "encoder"])
def test_a_step_sees_the_caches_that_the_prompt_filled(form, tmp_path):
    """The decoder of prompts has no caches as inputs: its outputs fill those of the decoder of further tokens."""
    folder = read_folder(nets.optimum_folder(tmp_path, form))
    part = next(one for one in folder.parts if one.name == "decoder_with_past")
    prompt = Prompt(np.arange(3, 9), "a test", {})
    chain = chain_of(folder)
    try:
        seen = list(batches(chain, part, [prompt], steps=2))
    finally:
        chain.close()
    first = 1 if form == "encoder" else 4  # a decoder whose encoder reads the prompt begins with one token
    caches = [name for name in seen[0] if name.startswith("past") and "encoder" not in name]
    assert caches and [{feeds[name].shape[2] for name in caches} for feeds in seen] == [{first}, {first + 1}]
    for name in seen[0]:
        if ".encoder." in name:
            assert seen[0][name].shape[2] == 6
    prompts = onnxruntime.InferenceSession(tmp_path / "decoder_model.onnx", providers=["CPUExecutionProvider"])
    if form == "two":
        filled = prompts.run(["present.0.key"], {"input_ids": prompt.ids[None, :4]})[0]
        np.testing.assert_array_equal(seen[0]["past_key_values.0.key"], filled)
