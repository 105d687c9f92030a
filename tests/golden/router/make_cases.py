#!/usr/bin/env python3
"""Writes cases.json beside this file: router logits and what published routers make of them, with numpy in single precision.

Each function follows its model's own published formulation, operation by operation on whole arrays (masks, scatter, gather), not ours.
"""
import json
import os
import numpy as np

F = np.float32


def softmax(z):
    e = np.exp(z - z.max(), dtype=F)
    return (e / e.sum(dtype=F)).astype(F)


def top(c, k):
    return np.argsort(-c, kind="stable")[:k]


def softmax_top(z, k, norm=False, bias=None, floor=0.0):
    """Qwen-MoE, Mixtral, OLMoE; with a bias and a floor: ERNIE-4.5."""
    p = softmax(z)
    i = top(p if bias is None else (p + bias).astype(F), k)
    w = p[i]
    return i, w / max(w.sum(dtype=F), F(floor)) if norm else w


def sigmoid(z):
    return (F(1) / (F(1) + np.exp(-z, dtype=F))).astype(F)


def grouped_sigmoid(z, k, bias, groups, kept, scale):
    """DeepSeek-V3."""
    s = sigmoid(z)
    c = (s + bias).astype(F)
    by_group = c.reshape(groups, -1)
    score = np.sort(by_group, axis=1)[:, -2:].sum(axis=1, dtype=F)
    mask = np.zeros(groups, bool)
    mask[top(score, kept)] = True
    i = top(np.where(np.repeat(mask, by_group.shape[1]), c, -np.inf), k)
    w = s[i]
    return i, w / (w.sum(dtype=F) + F(1e-20)) * F(scale)


def top_softmax(z, k):
    """gpt-oss, Granite."""
    i = top(z, k)
    return i, softmax(z[i])


def top_sigmoid(z, k):
    """Llama-4."""
    i = top(z, k)
    return i, sigmoid(z[i])


def sparsemixer(z, jitter):
    """Phi-3.5-MoE, at inference."""
    def near(best):
        factor = np.maximum(np.abs(z), best)
        with np.errstate(invalid="ignore"):
            return (best - z) / factor > F(2 * jitter)
    first = int(np.argmax(z))
    w1 = softmax(np.where(near(z.max()), -np.inf, z).astype(F))[first]
    rest = z.copy()
    rest[first] = -np.inf
    second = int(np.argmax(rest))
    w2 = softmax(np.where(near(rest.max()), -np.inf, rest).astype(F))[second]
    return np.array([first, second]), np.array([w1, w2], F)


def main():
    rng = np.random.default_rng(20)
    cases = []

    def add(kind, z, result, **params):
        cases.append({"kind": kind, "z": [float(v) for v in z], "expert": [int(v) for v in result[0]],
                      "weight": [float(v) for v in result[1]], **params})

    for n in range(6):
        E = [8, 16, 32, 64, 12, 128][n]
        z = rng.normal(0, 2, E).astype(F)
        bias = rng.normal(0, 0.05, E).astype(F)
        add("softmax", z, softmax_top(z, 4), normalise=False)
        add("softmax", z, softmax_top(z, 2, norm=True), normalise=True)
        add("softmax", z, softmax_top(z, 3, True, bias, 1e-12), normalise=True, floor=1e-12,
            bias=[float(b) for b in bias])
        add("sigmoid", z, grouped_sigmoid(z, 3, bias, 4, 2, 2.5), normalise=True, eps=1e-20, scale=2.5,
            groups=4, kept=2, bias=[float(b) for b in bias])
        add("softmax_chosen", z, top_softmax(z, 4))
        add("sigmoid_chosen", z, top_sigmoid(z, 1))
        add("sigmoid_chosen", z, top_sigmoid(z, 2))
        for spread in [2.0, 0.02, 0.2]:  # far apart, nearly all in, some in
            near = (F(3.0 - 6.0 * (n % 2)) + rng.normal(0, spread, 16)).astype(F)
            add("sparsemixer", near, sparsemixer(near, 0.01), jitter=0.01)
    add("sparsemixer", np.zeros(16, F), sparsemixer(np.zeros(16, F), 0.01), jitter=0.01)
    z = np.array([0.5, -0.0, 0.0, -3.0], F)
    add("sparsemixer", z, sparsemixer(z, 0.01), jitter=0.01)
    z = np.full(8, -120.0, F)
    z[5] = 0.0
    bias = np.zeros(8, F)
    bias[:5] = 2.0  # the chosen scores vanish: the floor divides
    add("softmax", z, softmax_top(z, 3, True, bias, 1e-12), normalise=True, floor=1e-12,
        bias=[float(b) for b in bias])
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
