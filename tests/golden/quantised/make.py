#!/usr/bin/env python3
"""Writes variants.safetensors and variants.json: small matrices in each storage scheme of quantised checkpoints, and the
quantization_config and the digest that go with each; and digests.json: for the quantised miniatures of ../architectures the digest of
every matrix (of all experts of a layer one after another). A digest is the FNV-1a hash of the numbers as float32, little-endian.
All by the formulas of the formats' own projects, in numpy, sharing no code with tutti.  Run here: python3 make.py (needs numpy)."""
import json
import os
import re
import struct
import numpy as np

f32 = np.float32
TYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64,
         "F8_E4M3": np.uint8, "F8_E8M0": np.uint8}
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], f32)


def e4m3_table():
    table = np.zeros(256, f32)
    for b in range(256):
        e, m = b >> 3 & 15, b & 7
        v = m * 2.0 ** -9 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
        table[b] = np.nan if b & 127 == 127 else -v if b & 128 else v
    return table


E4M3 = e4m3_table()


def number(kind, a):
    """The numbers of an array as stored."""
    if kind == "BF16":
        return (a.astype(np.uint32) << 16).view(f32)
    if kind == "F8_E8M0":
        return np.exp2(a.astype(np.float64) - 127).astype(f32)
    if kind == "F8_E4M3":
        return E4M3[a]
    return a.astype(f32)


def unpack(words, bits):
    """[..., n] int32 -> [..., n * 32 / bits]: lowest bits first."""
    w = words.astype(np.int64) & 0xffffffff
    return np.stack([(w >> (bits * i)) & (2 ** bits - 1) for i in range(32 // bits)], -1).reshape(*w.shape[:-1], -1)


def pack(values, bits):
    v = values.reshape(*values.shape[:-1], -1, 32 // bits).astype(np.int64)
    w = sum(v[..., i] << (bits * i) for i in range(32 // bits))
    return (w & 0xffffffff).astype(np.uint32).view(np.int32)


AWQ_ORDER = [0, 4, 1, 5, 2, 6, 3, 7]  # the nibble of column c


def awq_unpack(words):
    plain = unpack(words, 4).reshape(*words.shape, 8)
    return plain[..., AWQ_ORDER].reshape(*words.shape[:-1], -1)


def awq_pack(values):
    v = values.reshape(*values.shape[:-1], -1, 8)
    nibbles = np.empty_like(v)
    for c, n in enumerate(AWQ_ORDER):
        nibbles[..., n] = v[..., c]
    return pack(nibbles.reshape(values.shape), 4)


def blocks(scale, rows, cols, bh, bw):
    return np.repeat(np.repeat(scale, bh, -2), bw, -1)[..., :rows, :cols]


def dequantise(config, t, base):
    """The matrix of a module from the tensors (name -> (kind, array)) of its checkpoint; None if it is stored plainly."""
    def get(suffix):
        return t.get(base + suffix, (None, None))
    method = config["quant_method"]
    if method == "mxfp4":
        _, b = get("_blocks")
        _, s = get("_scales")
        if b is None:
            return None
        codes = np.stack([b & 15, b >> 4], -1).reshape(*b.shape[:-1], 32)
        return (E2M1[codes] * number("F8_E8M0", s)[..., None]).reshape(*b.shape[:-2], -1)
    if method in ("gptq", "awq"):
        _, q = get(".qweight")
        if q is None:
            return None
        bits = config["bits"]
        if method == "awq":
            codes, zeros = awq_unpack(q), awq_unpack(get(".qzeros")[1])
        else:
            codes, zeros = unpack(q.T, bits).T, unpack(get(".qzeros")[1], bits)
            if config.get("checkpoint_format", "gptq") == "gptq":
                zeros = (zeros + 1) % 2 ** bits
        scales = number(*get(".scales"))
        K, N = codes.shape
        g = config["group_size"] if config["group_size"] > 0 else K
        _, groups = get(".g_idx")
        groups = np.arange(K) // g if groups is None else groups
        zeros = zeros[:, :N]
        return ((codes - zeros[groups]).astype(f32) * scales[groups]).T
    if get(".weight_packed")[1] is not None:
        kind, p = get(".weight_packed")
        scales = number(*get(".weight_scale")) if kind == "I32" else number("F8_E8M0", get(".weight_scale")[1])
        if kind == "U8":
            codes = np.stack([p & 15, p >> 4], -1).reshape(*p.shape[:-1], -1)
            return E2M1[codes] * np.repeat(scales, 32, -1)
        weights = config["config_groups"]["group_0"]["weights"]
        bits = weights["num_bits"]
        u = unpack(p, bits)
        N, K = u.shape
        g = weights.get("group_size") or K
        g = K if g < 0 else g
        groups = np.arange(K) // g
        if get(".weight_g_idx")[1] is not None:
            groups = get(".weight_g_idx")[1]
        zero = np.full(scales.shape, 2 ** (bits - 1))
        if get(".weight_zero_point")[1] is not None:
            zero = unpack(get(".weight_zero_point")[1].T, bits).T[:N]
        return (u - zero[:, groups]).astype(f32) * scales[:, groups]
    kind, w = get(".weight")
    if kind not in ("F8_E4M3", "I8"):
        return None
    skind, s = get(".weight_scale_inv") if get(".weight_scale_inv")[1] is not None else get(".weight_scale")
    s = number(skind, s)
    bh, bw = config.get("weight_block_size") or (None, None)
    if method == "compressed-tensors":
        bh, bw = config["config_groups"]["group_0"]["weights"].get("block_structure") or (None, None)
    if bh:
        s = blocks(s, w.shape[-2], w.shape[-1], bh, bw)
    elif s.size == 1:
        s = s.reshape(())
    codes = number(kind, w)
    if get(".weight_zero_point")[1] is not None:
        codes = codes - number(*get(".weight_zero_point"))
    return (codes * s).astype(f32)


def fnv(chunks):
    h = 0xcbf29ce484222325
    for chunk in chunks:
        for byte in np.ascontiguousarray(chunk, "<f4").tobytes():
            h = ((h ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{h:016x}"


def load(path):
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, e in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            b, end = e["data_offsets"]
            tensors[name] = (e["dtype"], np.frombuffer(data[8 + n + b:8 + n + end], TYPES[e["dtype"]]).reshape(e["shape"]))
    return tensors


def save(path, tensors):
    header, data = {}, b""
    for name, (kind, a) in tensors.items():
        raw = np.ascontiguousarray(a).tobytes()
        header[name] = {"dtype": kind, "shape": list(a.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


# ---- variants ----
random = np.random.default_rng(7)
N, K = 40, 48
variants, configs = {}, {}


def scales(kind, *shape):
    s = random.uniform(0.01, 0.5, shape)
    if kind == "BF16":
        return (kind, (s.astype(f32).view(np.uint32) >> 16).astype(np.uint16))
    if kind == "F8_E8M0" or kind == "U8":
        return (kind, random.integers(120, 131, shape, dtype=np.uint8))
    return (kind, s.astype(TYPES[kind]))


def integers(low, high, *shape):
    return random.integers(low, high, shape)


def e4m3(*shape):
    b = integers(0, 256, *shape).astype(np.uint8)
    return ("F8_E4M3", np.where(b & 127 == 127, 0, b).astype(np.uint8))


def add(name, config, tensors, suffix=""):
    """tensors: what follows the module's name -> (kind, array)."""
    t = {name + k: v for k, v in tensors.items()}
    values = dequantise(config, t, name)
    assert values is not None and values.dtype == f32 and np.isfinite(values).all()
    variants.update(t)
    configs[name] = {"config": config, "tensor": name + suffix, "digest": fnv([values])}


def gptq(name, bits, sym, form="gptq", group=16, order=False, no_groups=False):
    G = 1 if group < 0 else K // group
    zero = np.full((G, N), 2 ** (bits - 1)) if sym else integers(1, 2 ** bits, G, N)
    stored = zero - 1 if form == "gptq" else zero
    groups = np.arange(K) // (K // G)
    t = {".qweight": ("I32", pack(integers(0, 2 ** bits, N, K), bits).T), ".qzeros": ("I32", pack(stored, bits)), ".scales": scales("F16", G, N)}
    if not no_groups:
        t[".g_idx"] = ("I32", (random.permutation(groups) if order else groups).astype(np.int32))
    add(name, {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": order, "checkpoint_format": form}, t, ".weight")


def compressed(name, form, weights, tensors):
    add(name, {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}},
        tensors, ".weight")


def weights(bits, kind, strategy, group=None, symmetric=True, **more):
    return {"num_bits": bits, "type": kind, "strategy": strategy, "group_size": group, "symmetric": symmetric, **more}


gptq("gptq4_sym", 4, True)
gptq("gptq4_sym_v2", 4, True, "gptq_v2")
gptq("gptq4_asym", 4, False, no_groups=True)
gptq("gptq4_asym_v2", 4, False, "gptq_v2")
gptq("gptq4_order", 4, False, order=True)
gptq("gptq4_whole", 4, True, group=-1, order=True)
gptq("gptq8_sym", 8, True)
gptq("gptq8_asym", 8, False)
add("awq", {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True},
    {".qweight": ("I32", awq_pack(integers(0, 16, K, N))), ".qzeros": ("I32", awq_pack(integers(0, 16, 3, N))), ".scales": scales("F16", 3, N)}, ".weight")
add("awq_whole", {"quant_method": "awq", "bits": 4, "group_size": -1, "version": "gemm", "zero_point": True},
    {".qweight": ("I32", awq_pack(integers(0, 16, K, N))), ".qzeros": ("I32", awq_pack(integers(0, 16, 1, N))), ".scales": scales("F16", 1, N)}, ".weight")
for kind in ("F32", "BF16", "F16", "F8_E8M0"):
    add("fp8_" + kind.lower(), {"quant_method": "fp8", "weight_block_size": [24, 20]},
        {".weight": e4m3(N, K), ".weight_scale_inv": scales(kind, 2, 3)}, ".weight")
add("fp8_odd", {"quant_method": "fp8", "weight_block_size": [7, 5]}, {".weight": e4m3(N, K), ".weight_scale_inv": scales("F32", 6, 10)}, ".weight")
add("fp8_planes", {"quant_method": "fp8", "weight_block_size": [24, 24]},
    {".weight": e4m3(3, N, K), ".weight_scale_inv": scales("F32", 3, 2, 2)}, ".weight")
add("fp8_tensor", {"quant_method": "fp8", "activation_scheme": "static"}, {".weight": e4m3(N, K), ".weight_scale": scales("F32")}, ".weight")
compressed("float_channel", "float-quantized", weights(8, "float", "channel"), {".weight": e4m3(N, K), ".weight_scale": scales("BF16", N, 1)})
compressed("float_tensor", "float-quantized", weights(8, "float", "tensor"), {".weight": e4m3(N, K), ".weight_scale": scales("F32", 1)})
compressed("float_block", "float-quantized", weights(8, "float", "block", block_structure=[16, 32]),
           {".weight": e4m3(N, K), ".weight_scale": scales("F32", 3, 2)})
compressed("int8_channel", "int-quantized", weights(8, "int", "channel"),
           {".weight": ("I8", integers(-128, 128, N, K).astype(np.int8)), ".weight_scale": scales("BF16", N, 1)})
compressed("int8_asym", "int-quantized", weights(8, "int", "channel", symmetric=False),
           {".weight": ("I8", integers(-128, 128, N, K).astype(np.int8)), ".weight_scale": scales("F32", N, 1),
            ".weight_zero_point": ("I8", integers(-128, 128, N, 1).astype(np.int8))})
shape = {".weight_shape": ("I64", np.array([N, K], np.int64))}
for bits in (4, 8):
    packed = {".weight_packed": ("I32", pack(integers(0, 2 ** bits, N, K), bits)), **shape}
    compressed(f"packed{bits}_group", "pack-quantized", weights(bits, "int", "group", 16), {**packed, ".weight_scale": scales("BF16", N, 3)})
    compressed(f"packed{bits}_channel", "pack-quantized", weights(bits, "int", "channel"), {**packed, ".weight_scale": scales("F16", N, 1)})
    compressed(f"packed{bits}_asym", "pack-quantized", weights(bits, "int", "group", 16, False),
               {**packed, ".weight_scale": scales("F32", N, 3), ".weight_zero_point": ("I32", pack(integers(0, 2 ** bits, 3, N), bits).T)})
compressed("packed4_order", "pack-quantized", weights(4, "int", "group", 16, False, actorder="group"),
           {".weight_packed": ("I32", pack(integers(0, 16, N, K), 4)), **shape, ".weight_scale": scales("BF16", N, 3),
            ".weight_zero_point": ("I32", pack(integers(0, 16, 3, N), 4).T),
            ".weight_g_idx": ("I32", random.permutation(np.arange(K) // 16).astype(np.int32))})
compressed("mxfp4_packed", "mxfp4-pack-quantized", weights(4, "float", "group", 32),
           {".weight_packed": ("U8", integers(0, 256, N, 32).astype(np.uint8)), ".weight_scale": scales("U8", N, 2)})
add("mxfp4_planes", {"quant_method": "mxfp4"}, {"_blocks": ("U8", integers(0, 256, 3, N, 2, 16).astype(np.uint8)), "_scales": scales("U8", 3, N, 2)})
save("variants.safetensors", variants)
with open("variants.json", "w") as file:
    json.dump(configs, file, indent=0)


# ---- miniatures ----
def miniature(folder):
    directory = os.path.join("..", "architectures", folder)
    config = json.load(open(os.path.join(directory, "config.json")))["quantization_config"]
    t = load(os.path.join(directory, "model.safetensors"))
    bases = sorted({re.sub(r"\.(qweight|weight_packed|weight)$|_blocks$", "", name) for name in t})
    values = {}
    for base in bases:
        w = dequantise(config, t, base)
        if w is not None:
            key = re.sub(r"experts\.(\d+)\.", "experts.", base)
            expert = re.search(r"experts\.(\d+)\.", base)
            values.setdefault(key, []).append((int(expert.group(1)) if expert else 0, w))
    return {key: fnv(w for _, w in sorted(found, key=lambda x: x[0])) for key, found in values.items()}


digests = {folder: miniature(folder) for folder in
           ("deepseek_v3_fp8", "gpt_oss_mxfp4", "qwen3_moe_gptq", "qwen3_moe_awq", "qwen3_moe_ct_int4", "qwen3_moe_ct_int8")}
with open("digests.json", "w") as file:
    json.dump(digests, file, indent=0)
