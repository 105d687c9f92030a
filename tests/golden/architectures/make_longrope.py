#!/usr/bin/env python3
"""Makes phimoe_longrope: a random Phi-3.5-MoE with two tables of angles, and what transformers (float32, eager) makes of it.

    make_longrope.py [FOLDER]

golden.safetensors: a request that stays within original_max_position_embeddings to its end (24 ids and 16 more of 40: the short table);
golden.long.safetensors: one that is longer from its start (41 ids and 16 more: the long table). Between the two, transformers changes the
table while a sequence grows and keeps the keys turned by the old one; tutti chooses once, by prompt and limit, so no reference is kept for that.
PhimoeRotaryEmbedding of transformers 5.24 computes the short table anew after its own update chose one: turn() uses the chosen one, as
the class of Phi-3 does. Needs torch, transformers and safetensors.
"""
import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.models.phimoe import modeling_phimoe

OUT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "phimoe_longrope"
ORIGINAL, N_NEW, N_SHORT, N_LONG = 40, 16, 24, 41
ROPE = {"short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5], "long_factor": [1.2, 2.0, 4.0, 7.0, 11.0, 16.0],
        "short_mscale": 1.125, "long_mscale": 1.25, "original_max_position_embeddings": ORIGINAL}


def turn(self, x, position_ids=None):
    """cos and sin by the table that dynamic_rope_update has put into inv_freq."""
    n = int(position_ids.max()) + 1
    scale = ROPE["long_mscale"] if n > ORIGINAL else ROPE["short_mscale"]
    angles = position_ids[..., None].float() * self.inv_freq.float()
    angles = torch.cat((angles, angles), dim=-1)
    return (angles.cos() * scale).to(x.dtype), (angles.sin() * scale).to(x.dtype)


def make():
    config = transformers.PhimoeConfig(
        vocab_size=160, hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=6, num_experts_per_tok=2, max_position_embeddings=160, attention_bias=True, lm_head_bias=True, sliding_window=None,
        tie_word_embeddings=False, attn_implementation="eager", dtype="float32", eos_token_id=2, bos_token_id=1, pad_token_id=0,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **ROPE})
    torch.manual_seed(35)
    model = transformers.PhimoeForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                p.copy_(1 + 0.1 * torch.randn_like(p))
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * (1.0 if "embed" in name else 1.5 * p.shape[-1] ** -0.5))
            p.copy_(p.bfloat16().float())
    return model


def published(config):
    keys = ("vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads num_local_experts "
            "num_experts_per_tok max_position_embeddings attention_bias lm_head_bias sliding_window tie_word_embeddings rms_norm_eps "
            "router_jitter_noise input_jitter_noise hidden_act bos_token_id eos_token_id pad_token_id").split()
    return {"architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe", "torch_dtype": "bfloat16", **{k: getattr(config, k) for k in keys}}


def write_configs(config):
    base = published(config)
    old = base | {"rope_theta": 10000.0, "original_max_position_embeddings": ORIGINAL, "rope_scaling": {"type": "longrope", **ROPE}}
    new = base | {"architectures": ["PhimoeForCausalLM"], "rope_parameters": {"rope_type": "longrope", "rope_theta": 10000.0, **ROPE}}
    for name, value in (("config.json", old), ("config.v5.json", new)):
        (OUT / name).write_text(json.dumps(value, indent=1) + "\n")


def golden(model, n, name, seed):
    ids = torch.randint(3, 160, (1, n), generator=torch.Generator().manual_seed(seed))
    grown, gaps = ids, []
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
        for _ in range(N_NEW):  # no cache: every key is turned by the table of the whole
            last = model(grown, use_cache=False).logits[0, -1]
            top = last.topk(2).values
            gaps.append(float(top[0] - top[1]))
            grown = torch.cat((grown, last.argmax().reshape(1, 1)), dim=1)
    save_file({"input_ids": ids[0].int(), "logits": logits.float().contiguous(), "greedy_ids": grown[0, n:].int().contiguous()}, OUT / name)
    return logits, gaps


def main():
    modeling_phimoe.PhimoeRotaryEmbedding.forward = transformers.modeling_rope_utils.dynamic_rope_update(turn)
    model = make()
    OUT.mkdir(exist_ok=True)
    model.save_pretrained(OUT)  # in published names
    path = OUT / "model.safetensors"
    tensors = load_file(path)
    assert "model.layers.0.block_sparse_moe.experts.0.w1.weight" in tensors, sorted(tensors)
    save_file({k: v.bfloat16() for k, v in tensors.items()}, path, {"format": "pt"})
    for extra in OUT.glob("generation_config.json"):
        extra.unlink()
    write_configs(model.config)
    _, short = golden(model, N_SHORT, "golden.safetensors", 11)
    _, long = golden(model, N_LONG, "golden.long.safetensors", 12)
    (OUT / "meta.json").write_text(json.dumps({"transformers": transformers.__version__, "greedy_top1_top2_gaps": short,
                                               "greedy_top1_top2_gaps_long": long}, indent=1) + "\n")


main()
