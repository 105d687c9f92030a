#!/usr/bin/env python3
"""Writes blocks.safetensors: for each GGML block type that tutti reads, random blocks and the numbers that they stand for,
computed by the gguf package (0.19.0), which shares no code with tutti.  Tensors: NAME.bytes [blocks][block bytes] U8,
NAME.values [blocks][block elements] F32.  Run: python3 make.py (needs numpy and gguf)."""
import json
import struct
import numpy as np
import gguf

BLOCKS = 5
# Where the f16 numbers of a block lie: random bytes there could be infinite or no number.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "MXFP4": []}
random = np.random.default_rng(20)
tensors = {}
for name, halves in HALVES.items():
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
    for at in halves:
        number = random.normal(0, 0.1, BLOCKS).astype(np.float16)
        number[0] = np.float16(6e-8)  # the smallest subnormal
        blocks[:, at:at + 2] = number.view(np.uint8).reshape(BLOCKS, 2)
    if name == "MXFP4":
        blocks[:, 0] = [0, 1, 127, 130, 250]
    values = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    assert values.shape == (BLOCKS, elements) and np.isfinite(values).all()
    tensors[name + ".bytes"] = blocks
    tensors[name + ".values"] = values
header, data = {}, b""
for name, array in tensors.items():
    raw = array.tobytes()
    header[name] = {"dtype": "U8" if array.dtype == np.uint8 else "F32", "shape": list(array.shape),
                    "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open("blocks.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
