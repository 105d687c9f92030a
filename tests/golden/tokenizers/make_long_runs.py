#!/usr/bin/env python3
"""Makes long_runs.json: how many ids the reference library gives for long runs of one character, and their FNV-1a hash.

    make_long_runs.py FOLDER      writes FOLDER/long_runs.json; run with tokenizers 0.23.3

A run is `head` and then `unit` repeated `count` times. The hash goes over the ids as four bytes each, least first.
"""
import json
import os
import sys

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
FAMILIES = ["small-deepseek_v3", "small-gptoss", "small-llama3", "small-mixtral", "small-qwen3"]
RUNS = [("Q", "", 131072), (".", "", 131072), (" ", "", 131072), ("1", "", 131072), ("\n", "", 131072), ("\u4e2d", "", 131072),
        ("us", "", 65536), ("\U0001f600", "", 100000), ("\u0301", "e", 65536), ("\t ", "", 65536), ("a ", "", 65536), ("'s", "", 65536),
        (" \n", "x", 65536), ("\u05d0", "", 65536), ("=", "", 100001), ("\U0001f468\u200d\U0001f469\u200d", "", 20000)]


def fnv(ids):
    h = 0xcbf29ce484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = ((h ^ byte) * 0x100000001b3) & 0xffffffffffffffff
    return f"{h:016x}"


def main():
    rows = {}
    for family in FAMILIES:
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(HERE, family, "tokenizer.json"))
        rows[family] = []
        for unit, head, count in RUNS:
            ids = tokenizer.encode(head + unit * count, add_special_tokens=False).ids
            rows[family].append({"unit": unit, "head": head, "count": count, "n": len(ids), "hash": fnv(ids)})
    with open(os.path.join(sys.argv[1], "long_runs.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(rows, indent=1) + "\n")


main()
