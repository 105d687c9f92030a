#!/usr/bin/env python3
"""make_corpus.py - writes the seeds under tests/fuzz/corpus: tiny checkpoints, tokenizers and templates that open, and hostile
ones made by hand. Files called found-* were found by fuzzing and are left alone. Needs nothing but Python; run it in the folder of
the repository: python3 tests/fuzz/make_corpus.py"""
import json
import os
import struct
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(TOP, "tests", "golden")
CORPUS = os.path.join(TOP, "tests", "fuzz", "corpus")


def save(target, name, data):
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def parts(*named):
    """One input of several files: (None, main file), (name, file), ..."""
    out = b""
    for name, data in named:
        data = data if isinstance(data, bytes) else data.encode()
        out += data if name is None else (b"\n" if out else b"") + b"====" + name.encode() + b"\n" + data
    return out


def load(*path):
    with open(os.path.join(GOLDEN, *path), "rb") as f:
        return f.read()


def pattern(n, seed):
    return bytes((seed * 37 + i * 11 + (i >> 3)) % 251 for i in range(n))


# ---- safetensors ----
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E8M0": 1}


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def header_and_data(tensors):
    """tensors: (name, dtype, shape[, bytes])"""
    head, data = {}, b""
    for i, (name, dtype, shape, *own) in enumerate(tensors):
        n = count(shape) * SIZES[dtype]
        body = own[0] if own else pattern(n, i) if dtype in ("U8", "I32", "I8") else small(dtype, count(shape), i)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + n]}
        data += body
    return json.dumps(head, separators=(",", ":")).encode(), data


def small(dtype, n, seed):
    one = {"F32": b"\x00\x00\x80\x3f", "BF16": b"\x80\x3f", "F16": b"\x00\x3c", "I64": b"\x20" + bytes(7), "F8_E4M3": b"\x38",
           "F8_E8M0": b"\x7f"}[dtype]
    return one * n


def file_of(head, data):
    return struct.pack("<Q", len(head)) + head + data


MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_hidden_layers": 1, "hidden_size": 8, "vocab_size": 6,
       "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "num_experts": 2, "num_experts_per_tok": 1,
       "moe_intermediate_size": 4, "intermediate_size": 4, "rms_norm_eps": 1e-6, "rope_theta": 10000, "norm_topk_prob": True,
       "tie_word_embeddings": False, "max_position_embeddings": 64, "decoder_sparse_step": 1, "mlp_only_layers": []}


def moe_tensors(c, linear):
    """linear(name, outputs, inputs): the tensors of one matrix"""
    H, V, D, F = c["hidden_size"], c["vocab_size"], c["head_dim"], c["moe_intermediate_size"]
    q, kv = c["num_attention_heads"] * D, c["num_key_value_heads"] * D
    t = [("model.embed_tokens.weight", "BF16", [V, H]), ("lm_head.weight", "BF16", [V, H]), ("model.norm.weight", "BF16", [H])]
    p = "model.layers.0."
    t += [(p + "input_layernorm.weight", "BF16", [H]), (p + "post_attention_layernorm.weight", "BF16", [H]),
          (p + "self_attn.q_norm.weight", "BF16", [D]), (p + "self_attn.k_norm.weight", "BF16", [D]),
          (p + "mlp.gate.weight", "BF16", [c["num_experts"], H])]
    for name, out, inputs in (("q_proj", q, H), ("k_proj", kv, H), ("v_proj", kv, H), ("o_proj", H, q)):
        t += linear(p + "self_attn." + name, out, inputs)
    for e in range(c["num_experts"]):
        for name, out, inputs in (("gate_proj", F, H), ("up_proj", F, H), ("down_proj", H, F)):
            t += linear(f"{p}mlp.experts.{e}.{name}", out, inputs)
    return t


def plain(dtype):
    return lambda name, out, inputs: [(name + ".weight", dtype, [out, inputs])]


GROUP = 32


def gptq(name, out, inputs):
    g = (inputs + GROUP - 1) // GROUP
    return [(name + ".qweight", "I32", [inputs // 8, out]), (name + ".qzeros", "I32", [g, out // 8]), (name + ".scales", "F16", [g, out]),
            (name + ".g_idx", "I32", [inputs], b"".join(struct.pack("<i", i // GROUP) for i in range(inputs)))]


def awq(name, out, inputs):
    g = inputs // GROUP
    return [(name + ".qweight", "I32", [inputs, out // 8]), (name + ".qzeros", "I32", [g, out // 8]), (name + ".scales", "F16", [g, out])]


def ct_int4(name, out, inputs):
    shape = struct.pack("<qq", out, inputs)
    return [(name + ".weight_packed", "I32", [out, inputs // 8]), (name + ".weight_scale", "BF16", [out, inputs // GROUP]),
            (name + ".weight_shape", "I64", [2], shape)]


def ct_int8(name, out, inputs):
    return [(name + ".weight", "I8", [out, inputs]), (name + ".weight_scale", "BF16", [out, 1])]


def fp8(name, out, inputs):
    up = lambda n: (n + 23) // 24
    return [(name + ".weight", "F8_E4M3", [out, inputs]), (name + ".weight_scale_inv", "F32", [up(out), up(inputs)])]


def safetensors():
    s = lambda name, data: save("safetensors", name, data)
    head, data = header_and_data(moe_tensors(MOE, plain("BF16")))
    s("tiny", file_of(head, data))
    s("tiny-parts", parts(("header", head), ("data", data)))
    for dtype in ("F32", "F16"):
        s("tiny-" + dtype, parts(*zip(("header", "data"), header_and_data(moe_tensors(MOE, plain(dtype))))))
    # quantised: 32 wide
    wide = dict(MOE, hidden_size=32, head_dim=16, moe_intermediate_size=32, num_attention_heads=2, num_key_value_heads=2)
    ct = lambda weights, form: {"quant_method": "compressed-tensors", "format": form,
                                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}
    for name, make, said in (
            ("gptq", gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True, "desc_act": False, "checkpoint_format": "gptq"}),
            ("gptq-act", gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": False, "desc_act": True}),
            ("awq", awq, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
            ("ct-int4", ct_int4, ct({"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}, "pack-quantized")),
            ("ct-int8", ct_int8, ct({"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}, "int-quantized")),
            ("fp8", fp8, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [24, 24]})):
        head, data = header_and_data(moe_tensors(wide, make))
        s("quant-" + name, parts(("header", head), ("data", data), ("config.json", json.dumps(dict(wide, quantization_config=said)))))
    # an index and two files
    t = moe_tensors(MOE, plain("BF16"))
    first, second = header_and_data(t[:9]), header_and_data(t[9:])
    where = {x[0]: "model.safetensors" if i < 9 else "second.safetensors" for i, x in enumerate(t)}
    index = json.dumps({"metadata": {"total_size": 1}, "weight_map": where})
    s("sharded", parts((None, file_of(*first)), ("second.safetensors", file_of(*second)), ("model.safetensors.index.json", index)))
    s("sharded-missing", parts((None, file_of(*first)), ("model.safetensors.index.json", index)))
    s("sharded-escape", parts((None, file_of(*first)), ("model.safetensors.index.json", '{"weight_map":{"a":"../model.safetensors"}}')))
    s("sharded-twice", parts((None, file_of(head, data)), ("second.safetensors", file_of(head, data)), ("model.safetensors.index.json", index)))
    # hostile: FC-02 A, B, D, E; FC-05 E to H and their like
    s("length-huge", b"\xff" * 7 + b"\x7f{}")
    s("length-wraps", b"\xff" * 8 + b"{}")
    s("length-100mb", struct.pack("<Q", 104857600) + b"{}")
    s("lfs-pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % ("0" * 64))
    s("seven-bytes", b"\x02\0\0\0\0\0\0")
    s("empty", b"")
    s("header-cut", struct.pack("<Q", 8) + b'{"a":{}')
    whole = file_of(*header_and_data(moe_tensors(MOE, plain("BF16"))))
    s("cut-60-percent", whole[:len(whole) * 6 // 10])
    one = lambda fields, n=64: file_of(json.dumps({"t.weight": fields}).encode(), bytes(n))
    s("shape-beyond-offsets", one({"dtype": "F32", "shape": [16, 32], "data_offsets": [0, 512]}, 512))
    s("zero-dimension", one({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, 0))
    s("wrapping-shape", one({"dtype": "F32", "shape": [2**32, 2**32], "data_offsets": [0, 64]}))
    s("wrapping-offsets", one({"dtype": "F32", "shape": [4], "data_offsets": [2**63 - 16, 2**63 - 1]}))
    s("negative", one({"dtype": "F32", "shape": [-4], "data_offsets": [-16, 0]}))
    s("many-dimensions", one({"dtype": "U8", "shape": [1] * 64, "data_offsets": [0, 1]}, 1))
    s("overlap", file_of(b'{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}}', bytes(12)))
    s("hole", file_of(b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[8,12]}}', bytes(12)))
    s("same-name", file_of(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', bytes(2)))
    s("deep", parts(("header", b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}"), ("data", b"")))
    s("f4", one({"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}, 1))
    s("metadata", file_of(b'{"__metadata__":{"format":"pt"},"a":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}}   ', bytes(2)))


# ---- GGUF ----
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
# elements and bytes of a block, by number of type
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110),
          12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136), 30: (1, 2), 39: (32, 17)}


def string(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    if isinstance(kind, tuple):  # (element type,): an array
        return struct.pack("<IQ", kind[0], len(v)) + b"".join(value(kind[0], x) for x in v)
    return string(v) if kind == STR else struct.pack("<" + FORMATS[kind], v)


def key(name, kind, v):
    return string(name) + struct.pack("<I", ARR if isinstance(kind, tuple) else kind) + value(kind, v)


def gguf(keys, tensors, version=3, n_tensors=None, n_keys=None):
    """keys: (name, type, value); tensors: (name, dims, type[, offset[, bytes]])"""
    head, data = b"", b""
    for i, (name, dims, kind, *own) in enumerate(tensors):
        n, size = BLOCKS.get(kind, (1, 4))
        n_bytes = size * (count(dims) // n)
        one = b"\x00\x00\x80\x3f" if kind == 0 else b"\x00\x3c"  # whatever else it means, it is no NaN
        body = own[1] if len(own) > 1 else (one * (n_bytes // len(one) + 1))[:n_bytes]
        offset = own[0] if own and own[0] is not None else len(data)
        head += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
        data += body + bytes(-len(body) % 32)
    start = b"GGUF" + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors, len(keys) if n_keys is None else n_keys)
    start += b"".join(key(*k) for k in keys) + head
    return start + bytes(-len(start) % 32) + data


VOCABULARY = [("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, "qwen2"),
              ("tokenizer.ggml.tokens", (STR,), ["a", "b", "ab", "<|end|>"]), ("tokenizer.ggml.token_type", (I32,), [1, 1, 1, 3]),
              ("tokenizer.ggml.merges", (STR,), ["a b"]), ("tokenizer.ggml.eos_token_id", U32, 3),
              ("tokenizer.chat_template", STR, "{% for m in messages %}{{ m.content }}{% endfor %}")]
SPM = [("tokenizer.ggml.model", STR, "llama"), ("tokenizer.ggml.tokens", (STR,), ["<unk>", "<s>", "</s>", "<0x41>", "\u2581a", "b"]),
       ("tokenizer.ggml.scores", (F32,), [0, 0, 0, 0, -1, -2]), ("tokenizer.ggml.token_type", (I32,), [2, 3, 3, 6, 1, 1]),
       ("tokenizer.ggml.bos_token_id", U32, 1), ("tokenizer.ggml.eos_token_id", U32, 2), ("tokenizer.ggml.add_bos_token", BOOL, 1)]


def model_keys(arch, H, heads, D, F, extra=()):
    k = [("general.architecture", STR, arch), ("general.name", STR, "tiny"), ("general.alignment", U32, 32), (arch + ".block_count", U32, 1),
         (arch + ".context_length", U32, 64), (arch + ".embedding_length", U32, H), (arch + ".feed_forward_length", U32, F),
         (arch + ".attention.head_count", U32, heads), (arch + ".attention.head_count_kv", U32, heads),
         (arch + ".attention.layer_norm_rms_epsilon", F32, 1e-6), (arch + ".rope.freq_base", F32, 10000.0),
         (arch + ".attention.key_length", U32, D), (arch + ".attention.value_length", U32, D)]
    return k + [(arch + "." + n, t, v) for n, t, v in extra]


def model_tensors(H, V, heads, D, F, E=0, kinds=None):
    kinds = kinds or {}
    q = heads * D
    t = [("token_embd.weight", [H, V]), ("output.weight", [H, V]), ("output_norm.weight", [H]), ("blk.0.attn_norm.weight", [H]),
         ("blk.0.ffn_norm.weight", [H]), ("blk.0.attn_q.weight", [H, q]), ("blk.0.attn_k.weight", [H, q]), ("blk.0.attn_v.weight", [H, q]),
         ("blk.0.attn_output.weight", [q, H])]
    if E:
        t += [("blk.0.attn_q_norm.weight", [D]), ("blk.0.attn_k_norm.weight", [D]), ("blk.0.ffn_gate_inp.weight", [H, E]),
              ("blk.0.ffn_gate_exps.weight", [H, F, E]), ("blk.0.ffn_up_exps.weight", [H, F, E]), ("blk.0.ffn_down_exps.weight", [F, H, E])]
    else:
        t += [("blk.0.ffn_gate.weight", [H, F]), ("blk.0.ffn_up.weight", [H, F]), ("blk.0.ffn_down.weight", [F, H])]
    return [(n, d, kinds.get(n.split(".")[-2], 0)) for n, d in t]


def moe_extra(E, F):
    return [("expert_count", U32, E), ("expert_used_count", U32, 1), ("expert_feed_forward_length", U32, F)]


def ggufs():
    s = lambda name, data: save("gguf", name, data)
    dense = model_keys("llama", 8, 2, 4, 4)
    s("llama", gguf(dense + VOCABULARY, model_tensors(8, 4, 2, 4, 4)))
    s("llama-spm", gguf(dense + SPM, model_tensors(8, 6, 2, 4, 4)))
    moe = model_keys("qwen3moe", 32, 2, 16, 32, moe_extra(2, 32))
    names = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
    for tag, kinds in (("legacy", (2, 3, 6, 7, 8, 20, 39)), ("f16", (1,) * 7), ("bf16", (30,) * 7), ("mxfp4", (8, 8, 8, 8, 39, 39, 39))):
        s("qwen3moe-" + tag, gguf(moe + VOCABULARY, model_tensors(32, 4, 2, 16, 32, 2, dict(zip(names, kinds)))))
    kinds = {"token_embd": 14, "output": 23, "attn_q": 12, "attn_k": 13, "attn_v": 11, "ffn_gate": 10, "ffn_up": 14, "ffn_down": 1, "attn_output": 1}
    s("llama-k", gguf(model_keys("llama", 256, 1, 8, 8), model_tensors(256, 4, 1, 8, 8, 0, kinds)))
    # two parts
    t = model_tensors(8, 4, 2, 4, 4)
    split = lambda no: [("split.no", U16, no), ("split.count", U16, 2), ("split.tensors.count", I32, len(t))]
    first, second = gguf(dense + split(0), t[:6]), gguf(split(1), t[6:])
    s("split", parts(("model-00001-of-00002.gguf", first), ("model-00002-of-00002.gguf", second)))
    s("split-missing", parts(("model-00001-of-00002.gguf", first)))
    s("split-same", parts(("model-00001-of-00002.gguf", first), ("model-00002-of-00002.gguf", gguf(split(0), t[:6]))))
    s("split-count-huge", gguf(dense + [("split.no", U16, 0), ("split.count", U16, 65535), ("split.tensors.count", I32, -1)], t))
    # FC-05 A to E and their like
    one = lambda dims, kind=0, offset=None, body=bytes(64): gguf(dense[:1], [("t.weight", dims, kind, offset, body)])
    s("zero-dimension", one([4, 0]))
    s("zero-dimension-needed", gguf(dense, [("token_embd.weight", [8, 0], 0, 0, b"")] + t[1:]))
    s("zero-dimension-unneeded", gguf(dense, t + [("more", [4, 0], 0, 0, b"")]))
    s("wrapping-shape", one([2**32, 2**32]))
    s("nine-dimensions", one([1] * 9))
    s("no-dimensions", one([]))
    s("wrapping-offset", one([16], 0, 2**64 - 32))
    s("unaligned-offset", one([4], 0, 16))
    s("unknown-type", one([4], 4))
    s("half-a-block", one([40], 12))
    whole = gguf(dense + VOCABULARY, model_tensors(8, 4, 2, 4, 4))
    s("cut-60-percent", whole[:len(whole) * 6 // 10])
    s("cut-in-key", whole[:100])
    s("version-2", gguf(dense, t, version=2))
    s("version-1", gguf(dense, t, version=1))
    s("version-big-endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    s("counts-huge", gguf([], [], n_tensors=2**63, n_keys=2**63))
    s("string-huge", b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**64 - 1))
    s("array-huge", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IIQ", ARR, U64, 2**61))
    s("array-of-bytes-huge", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IIQ", ARR, U8, 2**40))
    s("nested-arrays", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<I", ARR) + struct.pack("<IQ", ARR, 1) * 500)
    s("alignment-zero", gguf([("general.alignment", U32, 0)], []))
    s("alignment-huge", gguf([("general.alignment", U64, 2**63)], []))
    s("overlap", gguf(dense[:1], [("a", [9], 0, 0, bytes(64)), ("b", [4], 0, 32, b"")]))
    s("twice", gguf(dense[:1], [("a", [4], 0, 0, bytes(32)), ("a", [4], 0, 32, bytes(32))]))
    s("layers-huge", gguf(model_keys("llama", 8, 2, 4, 4)[:3] + [("llama.block_count", U32, 10000)] + dense[4:], t))
    s("experts-huge", gguf(model_keys("qwen3moe", 32, 2, 16, 32, moe_extra(65536, 32)), model_tensors(32, 4, 2, 16, 32, 2)))
    s("width-huge", gguf([k if k[0] != "llama.attention.key_length" else (k[0], U32, 1 << 20) for k in dense], t))
    for kind in (U8, I8, U16, I16, U32, I32, F32, BOOL, U64, I64, F64):
        s("key-%d" % kind, gguf([("a", kind, 1), ("b", (kind,), [0, 1, 1])], []))
    # what real converters write for each architecture: metadata alone, long arrays cut short
    folder = os.path.join(GOLDEN, "gguf")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".gguf"):
            s("keys-" + name[:-5], gguf(short_keys(load("gguf", name)), []))


def short_keys(data, most=12):
    """The keys of a GGUF file, arrays cut."""
    at = [8]

    def take(fmt):
        v = struct.unpack_from("<" + fmt, data, at[0])
        at[0] += struct.calcsize("<" + fmt)
        return v[0]

    def text():
        n = take("Q")
        at[0] += n
        return data[at[0] - n:at[0]]

    def read(kind):
        return text() if kind == STR else take(FORMATS[kind])

    take("Q")
    keys = []
    for _ in range(take("Q")):
        name, kind = text(), take("I")
        if kind == ARR:
            element, n = take("I"), take("Q")
            v = [read(element) for _ in range(n)]
            keys.append((name, (element,), v[:most]))
        else:
            keys.append((name, kind, read(kind)))
    return keys


# ---- configurations ----
def configs():
    s = lambda name, c: save("config", name, c if isinstance(c, (bytes, str)) else json.dumps(c, separators=(",", ":")))
    folder = os.path.join(GOLDEN, "architectures")
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name, "config.json")
        if os.path.exists(path):
            s(name, json.load(open(path)))
    s("tiny", MOE)
    s("generation", parts((None, json.dumps(MOE)), ("generation_config.json", json.dumps(
        {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "eos_token_id": [1, 2], "do_sample": True}))))
    for key_, values in {"num_hidden_layers": [0, -1, 10000, 2**63 - 1, 1e300, "1", None], "hidden_size": [0, 7, 1 << 20], "head_dim": [0, 1, 3, 1 << 20],
                         "num_attention_heads": [0, 3, 1 << 20], "num_key_value_heads": [0, 3], "num_experts": [0, 65536, 65537],
                         "num_experts_per_tok": [0, 3], "decoder_sparse_step": [0, -1, 5], "vocab_size": [0, 1 << 26],
                         "mlp_only_layers": [[0], [-1], [1.5], "x", None], "rms_norm_eps": [-1, 2], "rope_theta": [0, -1, 1e308]}.items():
        for i, v in enumerate(values):
            s("%s-%d" % (key_, i), dict(MOE, **{key_: v}))
    for kind in ("linear", "dynamic", "yarn", "longrope", "llama3", "su", "mrope"):
        s("rope-" + kind, dict(MOE, rope_scaling={"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0,
                                                  "high_freq_factor": 4.0, "short_factor": [1.0, 1.0], "long_factor": [1.0, 2.0], "beta_fast": 32}))
    s("rope-factor-zero", dict(MOE, rope_scaling={"type": "yarn", "factor": 0.0}))
    s("not-json", "{")
    s("not-an-object", "[1]")
    s("nan", '{"architectures":["Qwen3MoeForCausalLM"],"rope_theta":NaN}')
    s("same-key", '{"model_type":"a","model_type":"b"}')
    s("deep", '{"architectures":' + "[" * 3000 + "]" * 3000 + "}")
    s("nul", b'{"model_type":"qwen3\\u0000moe"}')
    s("lfs-pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


# ---- tokenizers ----
def tokenizers():
    s = lambda name, *p: save("tokenizer", name, parts(*p))
    for name in ("deepseek_v3", "gptoss", "llama3", "mixtral", "qwen3"):
        root = json.loads(load("tokenizers", "small-" + name, "tokenizer.json"))
        model = root["model"]
        vocab = sorted(model["vocab"].items(), key=lambda x: x[1])
        keep = dict(vocab[:300 if name == "mixtral" else 280])
        model["vocab"] = keep
        merged = lambda m: m.split(" ") if isinstance(m, str) else m
        model["merges"] = [m for m in model["merges"] if all(x in keep for x in merged(m)) and "".join(merged(m)) in keep]
        root["added_tokens"] = [t for t in root["added_tokens"] if t["content"] in keep or t["id"] < 300][:6]
        s("small-" + name, (None, json.dumps(root, separators=(",", ":"), ensure_ascii=False)), ("text", "Hello, world! 123 \u00e9\u4e2d"),
          ("tokenizer_config.json", '{"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":false}'))
    base = {"version": "1.0", "added_tokens": [{"id": 4, "content": "<|end|>", "special": True}], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"]}}
    put = lambda name, **k: s(name, (None, json.dumps(dict(base, **k), ensure_ascii=False)))
    s("base", (None, json.dumps(base)))
    for i, n in enumerate(({"type": "NFC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "\u2581"},
                           {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}, {"type": "Strip", "strip_left": True, "strip_right": True},
                           {"type": "Replace", "pattern": {"Regex": "a{0,3}"}, "content": "bb"},
                           {"type": "Sequence", "normalizers": [{"type": "NFD"}] * 3}, {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 40},
                           {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 64}] * 8})):
        put("normalizer-%d" % i, normalizer=n)
    split = lambda regex, behavior="Isolated", invert=False: {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}
    steps = [{"type": "ByteLevel", "add_prefix_space": True, "use_regex": True, "trim_offsets": True}, {"type": "Digits", "individual_digits": True},
             {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}, split("\\p{L}+|\\s+(?!\\S)|\\s+"),
             split("(a+)+$"), split("(?:a|aa)*?b", "Removed"), split("(?i:'s|'t)", "MergedWithPrevious"), split("[^\\r\\n\\p{L}&&[\\p{M}]]", "Contiguous"),
             split("", "MergedWithNext"), split("(?<=a)b", "Isolated", True), split("a{1000}{1000}"), split("((((((((((a){9}){9}){9}){9}){9}){9}){9}"),
             split("\\1"), split("(?R)"), split("(?{x})"), split("[["), split("(*NO_UTF)a"), {"type": "Sequence", "pretokenizers": []},
             {"type": "Unknown"}]
    for i, p in enumerate(steps):
        put("pretokenizer-%02d" % i, pre_tokenizer=p)
    put("pretokenizer-all", pre_tokenizer={"type": "Sequence", "pretokenizers": steps[:4]})
    bomb = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}] * 32
    put("growth-normalizers", normalizer={"type": "Sequence", "normalizers": bomb})
    put("growth-decoders", decoder={"type": "Sequence", "decoders": bomb})
    put("growth-bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "use_regex": False, "add_prefix_space": False}] * 32})
    put("growth-spaces", pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": " ", "str_rep": "  "}] * 30})
    for i, d in enumerate(({"type": "ByteLevel"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1},
                           {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "Metaspace", "replacement": "\u2581"},
                           {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"Regex": "b*"}, "content": "aa"}, {"type": "ByteFallback"},
                                                             {"type": "Fuse"}, {"type": "Strip", "content": "a", "start": 2, "stop": 1}]})):
        put("decoder-%d" % i, decoder=d)
    put("post", post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                "pair": [], "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [4], "tokens": ["<|end|>"]}}})
    put("fallback", model={"type": "BPE", "byte_fallback": True, "unk_token": "u", "fuse_unk": True,
                           "vocab": dict({"u": 0}, **{"<0x%02X>" % i: i + 1 for i in range(256)}), "merges": []})
    for i, m in enumerate(({"type": "BPE", "vocab": {"a": 2**31}, "merges": []}, {"type": "BPE", "vocab": {"a": 16777215}, "merges": []},
                           {"type": "BPE", "vocab": {"a": -1}, "merges": []}, {"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []},
                           {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}, {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b", "c"]]},
                           {"type": "Unigram", "vocab": []}, {"type": "BPE", "vocab": {}, "merges": []},
                           {"type": "BPE", "vocab": {"": 0}, "merges": [["", ""]]})):
        put("model-%d" % i, model=m)
    put("added-huge", added_tokens=[{"id": 16777215, "content": "x"}])
    put("added-flags", added_tokens=[{"id": 4, "content": "x", "lstrip": True, "rstrip": True, "single_word": True, "normalized": True}])
    put("added-empty", added_tokens=[{"id": 4, "content": ""}])
    s("not-json", (None, '{"model'))
    s("deep", (None, '{"normalizer":' + '{"type":"Sequence","normalizers":[' * 500 + "]}" * 500 + "}"))
    import base64
    ranks = "".join("%s %d\n" % (base64.b64encode(bytes([i])).decode(), i) for i in range(256)) + base64.b64encode(b"ab").decode() + " 256\n"
    s("tiktoken", ("tiktoken.model", ranks), ("tokenizer_config.json", '{"added_tokens_decoder":{"257":{"content":"[BOS]","special":true}},"bos_token":"[BOS]"}'),
      ("text", "ab [BOS] x\u4e2d"))
    for i, t in enumerate(("YQ== 0\nYg== 0\n", "YQ== 16777216\n", "YQ== -1\n", "!!!! 0\n", "YQ==\n", "\n\n", "YQ== 999999\n")):
        s("tiktoken-%d" % i, ("tiktoken.model", t))
    s("text-broken", (None, json.dumps(base)), ("text", b"\xff\xc3\xe4\xb8a\x00b\xf4\x90\x80\x80"))


# ---- templates ----
def templates():
    s = lambda name, *p: save("template", name, parts(*p))
    folder = os.path.join(GOLDEN, "templates")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jinja"):
            s(name[:-6], (None, load("templates", name)))
    # a selection of the language's cases, over the variables that they are made for
    first, *cases = [json.loads(line) for line in load("templates", "language.jsonl").splitlines()]
    variables = json.dumps(first["variables"], ensure_ascii=False, separators=(",", ":"))
    for i in range(0, len(cases), 5):
        s("case-%03d" % i, (None, cases[i]["t"]), ("variables", variables))
    hostile = ["{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{% for i in range(10**18) %}{% endfor %}",
               "{{ 'a' * 10**9 }}", "{{ ('a' * 10**5)|replace('a', 'b' * 10**5) }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
               "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", "(" * 2000, "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
               "{{ " + "-" * 3000 + "1 }}", "{{ " + "not " * 2000 + "1 }}", "{% if a %}" * 800, "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 2 ** 100000 }}",
               "{{ -9223372036854775807 - 2 }}", "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 9223372036854775807 * 2 }}", "{{ 1e308 * 10 }}",
               "{{ '%s' % 1 }}", "{{ '%99999999d' % 1 }}", "{{ 'abc'[::0] }}", "{{ 'abc'[::-9223372036854775808] }}", "{{ [1,2][9223372036854775807] }}",
               "{{ x.y.z }}", "{{ ''.__class__.__mro__ }}", "{{ raise_exception('no') }}", "{{ strftime_now('%' * 500) }}", "{{ strftime_now('%999999Y') }}",
               "{% set ns = namespace(l=[]) %}{% for i in range(50) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
               "{% set ns = namespace(s='a') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
               "{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}", "{% set l = [1] %}{% set _ = l.append(l) %}{{ l == l }}{{ l|tojson }}",
               "{{ {'a': 1}|tojson(indent=1000000000) }}", "{{ 'x'|center(10**12) }}", "{{ 'x'|indent(10**12) }}", "{{ messages|sort(attribute='content') }}",
               "{{ 'a,b' .split(',', -1) }}{{ 'a'.join(['b'] * 10) }}", "{% raw %}{{ x }}{% endraw %}{# c #}{%- if 1 -%} {%+ endif %}", "{{ 'unterminated",
               "{% generation %}x{% endgeneration %}", "{{ loop.index }}{% for a, b in d.items() %}{{ loop.previtem }}{% endfor %}", "\xff{{ '\\xff\\u0000\\U00110000' }}"]
    for i, h in enumerate(hostile):
        s("hostile-%02d" % i, (None, h.encode("latin-1") if "\xff" in h else h))
    s("variables-deep", (None, "{{ x|tojson }}{{ x == x }}{{ x }}"), ("variables", '{"x":' + "[" * 1500 + "]" * 1500 + "}"))
    s("variables-wide", (None, "{{ messages|map(attribute='a')|list }}{{ messages|selectattr('a')|list }}"), ("variables", json.dumps(
        {"messages": [{"a": i} for i in range(100)]})))


for make in (safetensors, ggufs, configs, tokenizers, templates):
    make()
total = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(CORPUS) for f in fs)
print("%d bytes" % total)
sys.exit(0 if total < 1 << 20 else "the corpus is above 1 MB")
