#!/usr/bin/env python3
"""Makes the GGUF files of this folder and their golden logits.

    make.py LLAMA_CPP QUANTISER [WHAT ...]

LLAMA_CPP is a source tree of llama.cpp: its own converter (the package `conversion`) writes every file. QUANTISER is a program
that calls ggml_quantize_chunk: arguments TYPE ROWS COLUMNS, f32 on stdin, blocks on stdout. Needs torch, transformers, gguf.

miniatures: some of the models of tests/golden/architectures as bf16, one of them in parts; their golden logits are those of that folder. They have no tokenizer,
so the converter is told to write none. Where it asks for spellings that their configurations lack, it is given them (patch()).
types: a Qwen3-MoE whose rows are wide enough for every type; each matrix of another type, in two deals. The golden logits are those
of transformers, float32, with the numbers that the gguf package de-quantises.
vocabulary: the tokenizer of models/tiny-moe.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

LLAMA = sys.argv[1]  # of benchmarks/accept/02-2 too, which imports this file
sys.path[:0] = [LLAMA + "/gguf-py", LLAMA]
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from conversion import get_model_class  # noqa: E402
from conversion.base import ModelBase  # noqa: E402

HERE = Path(__file__).resolve().parent
ARCHITECTURES = HERE.parent / "architectures"
TINY_MOE = HERE.parents[2] / "models/tiny-moe"
MINIATURES = ["deepseek_v3", "gpt_oss_mxfp4", "granitemoeshared", "llama4_text", "qwen2_moe", "qwen3_next"]
DEALS = {
    "types_a": ["Q8_0 Q6_K", "Q4_0 F16 Q4_1 Q5_0 Q4_K Q5_K Q6_K", "IQ4_NL BF16 F32 Q5_1 Q8_0 MXFP4 Q4_0"],
    "types_b": ["Q4_K Q8_0", "Q4_K Q6_K Q8_0 Q5_K Q4_0 Q4_1 Q5_0", "Q6_K MXFP4 Q5_K Q4_K Q5_1 IQ4_NL Q4_K"],
}
SLOTS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]


def patch(model, architecture):
    h = model.hparams
    if architecture == "HunYuanMoEV1ForCausalLM":
        for key in ("moe_intermediate_size", "moe_topk", "num_shared_expert"):
            h[key] = [h[key]] * h["num_hidden_layers"]
    if architecture == "MiniMaxM2ForCausalLM":
        h["rotary_dim"] = h["head_dim"] // 2
    if architecture == "PhiMoEForCausalLM":
        model.rope_parameters["original_max_position_embeddings"] = h["max_position_embeddings"]
    if architecture == "Llama4ForCausalLM":
        model.gguf_writer.add_sliding_window(h["attention_chunk_size"])  # llama.cpp knows 8192 only


def converter(source, out, ftype, **options):
    with torch.inference_mode():
        architecture = ModelBase.load_hparams(source, False)["architectures"][0]
        architecture = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}.get(architecture, architecture)
        kind = get_model_class(architecture)
        tensor = gguf.MODEL_TENSOR
        if architecture == "Qwen3NextForCausalLM":
            kind.no_mtp = True
        if architecture in ("Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM"):  # some layers of the miniatures are dense
            gguf.MODEL_TENSORS[kind.model_arch] += [tensor.FFN_GATE, tensor.FFN_UP, tensor.FFN_DOWN]
        model = kind(source, ftype, out, **options)
        patch(model, architecture)
    model.get_vocab_base_pre = lambda tokenizer: "dbrx"  # the splitter of models/tiny-moe; the converter knows released models only
    return model


def write(model):
    with torch.inference_mode():
        if not (model.dir_model / "tokenizer.json").exists():
            model.set_vocab = lambda: model.gguf_writer.add_tokenizer_model("none")
        model.write()


def save_golden(path, arrays):
    header, data = {}, b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        dtype = "F32" if array.dtype == np.float32 else "I32"
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def quantise(quantiser, data, qtype):
    assert isinstance(data, np.ndarray) and data.std() > 0, "nothing to quantise"
    rows = data.size // data.shape[-1]
    blocks = subprocess.run([quantiser, str(int(qtype)), str(rows), str(data.shape[-1])],
                            input=np.ascontiguousarray(data, np.float32).tobytes(), stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(blocks, np.uint8).reshape(data.shape[:-1] + (-1,))


def random_model(config):
    from transformers import Qwen3MoeForCausalLM
    torch.manual_seed(7)
    model = Qwen3MoeForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1 + 0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (1.0 if "embed" in name else p.shape[-1] ** -0.5 * 1.5))
    return model


def load_numbers(model, path):
    """The file's numbers, de-quantised, in place of the model's."""
    state = {}
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate"}
    top = {"token_embd.weight": "model.embed_tokens.weight", "output.weight": "lm_head.weight", "output_norm.weight": "model.norm.weight"}
    parts = {}
    for tensor in gguf.GGUFReader(path).tensors:
        numbers = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32).copy())
        assert numbers.std() > 0, f"{path}: {tensor.name} holds equal numbers"
        if tensor.name in top:
            state[top[tensor.name]] = numbers
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in names:
            state[f"model.layers.{layer}.{names[kind]}.weight"] = numbers
        else:
            parts[layer, kind] = numbers
    for layer in range(model.config.num_hidden_layers):
        gate, up, down = (parts[str(layer), f"ffn_{k}_exps"] for k in ("gate", "up", "down"))
        state[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = torch.cat([gate, up], dim=1)
        state[f"model.layers.{layer}.mlp.experts.down_proj"] = down
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not missing and not unexpected, (missing, unexpected)


def make_types(quantiser):
    from transformers import Qwen3MoeConfig
    config = Qwen3MoeConfig(vocab_size=64, hidden_size=256, intermediate_size=256, moe_intermediate_size=256, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=1, head_dim=64, num_experts=3, num_experts_per_tok=2,
                            norm_topk_prob=True, decoder_sparse_step=1, max_position_embeddings=512, rope_theta=1e6,
                            tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, attn_implementation="eager")
    model = random_model(config)
    ids = torch.randint(3, 64, (1, 24), generator=torch.Generator().manual_seed(3))
    real_quantize = gguf.quants.quantize
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for name, deal in DEALS.items():
            types = {"token_embd": deal[0].split()[0], "output": deal[0].split()[1]}
            types |= {f"blk.{n}.{slot}": t for n in (0, 1) for slot, t in zip(SLOTS, deal[1 + n].split())}
            # eager: quantise() must see numbers, not the converter's promises of them
            convert = converter(Path(folder), HERE / (name + ".gguf"), gguf.LlamaFileType.ALL_F32, eager=True)
            convert.tensor_force_quant = lambda _, new, bid, n: gguf.GGMLQuantizationType[types[new[:-7]]] if new[:-7] in types else False
            gguf.quants.quantize = lambda data, t: real_quantize(data, t) if t.name in ("F32", "F16", "BF16") else quantise(quantiser, data, t)
            write(convert)
            gguf.quants.quantize = real_quantize
            load_numbers(model, HERE / (name + ".gguf"))
            with torch.no_grad():
                logits = model(ids).logits[0]
                greedy = model.generate(ids, max_new_tokens=16, do_sample=False, eos_token_id=None)[0, ids.shape[1]:]
            assert logits.std() > 0.1, "logits without a spread test nothing"
            save_golden(HERE / (name + ".golden.safetensors"),
                        {"input_ids": ids[0].numpy().astype(np.int32), "logits": logits.numpy(), "greedy_ids": greedy.numpy().astype(np.int32)})


def make_vocabulary():
    model = converter(TINY_MOE, HERE / "vocabulary.gguf", gguf.LlamaFileType.ALL_F32)
    model.prepare_metadata(vocab_only=True)
    model.gguf_writer.write_header_to_file(path=model.fname_out)
    model.gguf_writer.write_kv_data_to_file()
    model.gguf_writer.close()


def main():
    quantiser, what = sys.argv[2], sys.argv[3:] or ["miniatures", "types", "vocabulary"]
    if "miniatures" in what:
        for name in MINIATURES:
            write(converter(ARCHITECTURES / name, HERE / (name + ".gguf"), gguf.LlamaFileType.MOSTLY_BF16))
        (HERE / "split").mkdir(exist_ok=True)
        write(converter(ARCHITECTURES / "llama_dense", HERE / "split/llama_dense.gguf", gguf.LlamaFileType.MOSTLY_BF16, split_max_tensors=12))
    if "types" in what:
        make_types(quantiser)
    if "vocabulary" in what:
        make_vocabulary()


if __name__ == "__main__":
    main()
