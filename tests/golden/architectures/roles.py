"""Makes roles.json: of each miniature, which tensors there are by role, and a checksum of their numbers.

An own reading of the checkpoints with NumPy, from the published layouts; what tests/unit/test_model.c holds tutti's reading
against. Usage: python3 roles.py (in this folder). A value is [rows, columns, CRC-32 of the float32 numbers in order]; of experts it
is over all of them, one after another; of the decay rates, which are exponentials, it is [rows, columns, the numbers].
"""
import json
import os
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = """deepseek_v2 deepseek_v2_group deepseek_v3 dots1 ernie4_5_moe flex_olmo glm4_moe gpt_oss granitemoe granitemoeshared
hunyuan_v1_moe kimi_k2 llama4_text llama_dense minimax_m2 mixtral olmoe phimoe qwen2_moe qwen3_dense qwen3_moe qwen3_moe_yarn
qwen3_next""".split()


def load(path):
    with open(path, "rb") as file:
        n = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(n))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            assert entry["dtype"] == "F32", entry
            values = np.frombuffer(raw, "<f4")
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def of_layer(t, config, layer):
    """Roles of one layer; experts as lists."""
    out = {}
    p = f"model.layers.{layer}."
    n_experts = next((config[k] for k in ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts") if config.get(k)), 0)

    def put(role, name, change=lambda x: x):
        if p + name in t:
            out[role] = change(t[p + name])

    flex, next_, model = "flex_olmo" in config["model_type"], config["model_type"] == "qwen3_next", config["model_type"]
    plus = (lambda x: np.float32(1) + x) if next_ else (lambda x: x)
    put("ATTENTION_NORM", "post_attention_layernorm.weight" if flex else "input_layernorm.weight", plus)
    put("FFN_NORM", "post_feedforward_layernorm.weight" if flex else "post_attention_layernorm.weight", plus)
    put("ATTENTION_NORM_BIAS", "input_layernorm.bias")
    put("FFN_NORM_BIAS", "post_attention_layernorm.bias")
    a = "self_attn."
    for role, name in {"Q": "q_proj", "K": "k_proj", "V": "v_proj", "O": "o_proj"}.items():
        put(role, a + name + ".weight")
        put(role + "_BIAS", a + name + ".bias")
    put("SINKS", a + "sinks")
    for role, name in {"Q_NORM": "q_norm", "K_NORM": "k_norm"}.items():
        put(role, a + name + ".weight", plus)
    put("Q_NORM", a + "query_layernorm.weight")
    put("K_NORM", a + "key_layernorm.weight")
    for role, name in {"Q_A": "q_a_proj", "Q_A_NORM": "q_a_layernorm", "Q_B": "q_b_proj", "KV_A": "kv_a_proj_with_mqa",
                       "KV_A_NORM": "kv_a_layernorm", "KV_B": "kv_b_proj"}.items():
        put(role, a + name + ".weight")
    if next_ and "Q" in out:
        heads = out["Q"].reshape(config["num_attention_heads"], 2, config["head_dim"], -1)
        out["Q_GATE"] = heads[:, 1].reshape(-1, heads.shape[-1])
        out["Q"] = heads[:, 0].reshape(-1, heads.shape[-1])
    d = "linear_attn."
    if p + d + "A_log" in t:
        nk, nv = config["linear_num_key_heads"], config["linear_num_value_heads"]
        dk, dv = config["linear_key_head_dim"], config["linear_value_head_dim"]
        g = t[p + d + "in_proj_qkvz.weight"].reshape(nk, -1, config["hidden_size"])
        r = nv // nk * dv
        flat = lambda x: x.reshape(-1, config["hidden_size"])
        out["DELTA_QKV"] = np.concatenate([flat(g[:, :dk]), flat(g[:, dk:2 * dk]), flat(g[:, 2 * dk:2 * dk + r])])
        out["DELTA_GATE"] = flat(g[:, 2 * dk + r:])
        ba = t[p + d + "in_proj_ba.weight"].reshape(nk, 2, nv // nk, -1)
        out["DELTA_BETA"], out["DELTA_DECAY"] = flat(ba[:, 0]), flat(ba[:, 1])
        put("DELTA_CONV", d + "conv1d.weight", lambda x: x[:, 0])
        put("DELTA_DECAY_BIAS", d + "dt_bias")
        put("DELTA_DECAY_RATE", d + "A_log", lambda x: np.exp(x.astype(np.float64)))
        put("DELTA_NORM", d + "norm.weight")
        put("DELTA_OUT", d + "out_proj.weight")
    ffn = "feed_forward." if model == "llama4_text" else "mlp."
    for role, name in {"GATE": "gate_proj", "UP": "up_proj", "DOWN": "down_proj"}.items():
        put(role, ffn + name + ".weight")
        for shared in ("shared_expert", "shared_experts", "shared_mlp"):
            put("SHARED_" + role, f"{ffn}{shared}.{name}.weight")
    put("SHARED_ROUTER", "mlp.shared_expert_gate.weight")
    if p + "shared_mlp.input_linear.weight" in t:
        both = t[p + "shared_mlp.input_linear.weight"]
        out["SHARED_GATE"], out["SHARED_UP"] = np.split(both, 2)
        put("SHARED_DOWN", "shared_mlp.output_linear.weight")
    for name in ("mlp.gate.weight", "block_sparse_moe.gate.weight", "mlp.router.weight", "block_sparse_moe.router.layer.weight",
                 "mlp.gate.wg.weight", "feed_forward.router.weight"):
        put("ROUTER", name)
    put("ROUTER_BIAS", "mlp.router.bias")
    for name in ("mlp.gate.e_score_correction_bias", "block_sparse_moe.e_score_correction_bias"):
        put("ROUTER_CHOICE_BIAS", name)
    put("ROUTER_CHOICE_BIAS", "mlp.moe_statics.e_score_correction_bias", lambda x: x[0])
    roles = {"EXPERT_GATE": ("gate_proj", "w1"), "EXPERT_UP": ("up_proj", "w3"), "EXPERT_DOWN": ("down_proj", "w2")}
    for role, (one, other) in roles.items():
        for name in (f"mlp.experts.%d.{one}.weight", f"block_sparse_moe.experts.%d.{other}.weight"):
            if p + name % 0 in t:
                out[role] = [t[p + name % e] for e in range(n_experts)]
    if p + "block_sparse_moe.input_linear.weight" in t:
        both = t[p + "block_sparse_moe.input_linear.weight"]
        half = both.shape[1] // 2
        out["EXPERT_GATE"], out["EXPERT_UP"] = list(both[:, :half]), list(both[:, half:])
        out["EXPERT_DOWN"] = list(t[p + "block_sparse_moe.output_linear.weight"])
    if p + ffn + "experts.gate_up_proj" in t:
        both = t[p + ffn + "experts.gate_up_proj"].transpose(0, 2, 1)
        down = t[p + ffn + "experts.down_proj"].transpose(0, 2, 1)
        half = both.shape[1] // 2
        turns = model == "gpt_oss"
        out["EXPERT_GATE"] = list(both[:, 0::2] if turns else both[:, :half])
        out["EXPERT_UP"] = list(both[:, 1::2] if turns else both[:, half:])
        out["EXPERT_DOWN"] = list(down)
    if p + "mlp.experts.gate_up_proj_bias" in t:
        bias = t[p + "mlp.experts.gate_up_proj_bias"]
        out["EXPERT_GATE_BIAS"], out["EXPERT_UP_BIAS"] = list(bias[:, 0::2]), list(bias[:, 1::2])
        out["EXPERT_DOWN_BIAS"] = list(t[p + "mlp.experts.down_proj_bias"])
    return out


def describe(values, exact=True):
    parts = values if isinstance(values, list) else [values]
    shape = list(parts[0].shape) + [1] * (2 - parts[0].ndim)
    if not exact:
        return shape + [[float(x) for x in parts[0]]]
    crc = 0
    for part in parts:
        crc = zlib.crc32(np.ascontiguousarray(part, "<f4").tobytes(), crc)
    return shape + [crc]


def main():
    table = {}
    for folder in FOLDERS:
        with open(os.path.join(HERE, folder, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        t = load(os.path.join(HERE, folder, "model.safetensors"))
        one = table[folder] = {}
        plus = np.float32(1 if config["model_type"] == "qwen3_next" else 0)
        for role, name in {"EMBED": "model.embed_tokens.weight", "FINAL_NORM": "model.norm.weight", "FINAL_NORM_BIAS": "model.norm.bias",
                           "HEAD": "lm_head.weight", "HEAD_BIAS": "lm_head.bias"}.items():
            if name in t:
                one[role] = describe(t[name] + plus if role == "FINAL_NORM" else t[name])
        for layer in range(config["num_hidden_layers"]):
            for role, values in of_layer(t, config, layer).items():
                one[f"{role} {layer}"] = describe(values, role != "DELTA_DECAY_RATE")
    with open(os.path.join(HERE, "roles.json"), "w", encoding="utf-8") as file:
        lines = [json.dumps(folder) + ": " + json.dumps(one, separators=(",", ":")) for folder, one in table.items()]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
