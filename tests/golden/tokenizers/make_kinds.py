#!/usr/bin/env python3
"""Makes the golden files of the kinds of vocabulary that are no tokenizer.json, from the libraries they belong to.

    make_kinds.py FOLDER      writes FOLDER/sentencepiece.json, splitters.json, patterns.json, tiktoken/...; run with
                              tokenizers 0.23.3, tiktoken 0.14.0, sentencepiece 0.2.3

Texts come from the generator of benchmarks/accept/02-4 and the licence; vocabularies are small on purpose.
"""
import base64
import importlib.util
import io
import json
import os
import random
import sys
from importlib.machinery import SourceFileLoader

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
# DeepSeek-V2's letters that have a case, as first and last code points.
CASED = (
    "41-5a 61-7a b5-b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-376 377-377 37b-37d 37f-37f 386-386 388-38a 38c-38c "
    "38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 "
    "1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59-1f59 1f5b-1f5b 1f5d-1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe-1fbe 1fc2-1fc4 1fc6-1fcc "
    "1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102-2102 2107-2107 210a-2113 2115-2115 2119-211d 2124-2124 2126-2126 2128-2128 "
    "212a-212d 212f-2134 2139-2139 213c-213f 2145-2149 214e-214e 2183-2183 2184-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf2 2cf3-2cf3 "
    "a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f 104b0-104d3 "
    "104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943 ").split()
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
FIXED = ["Hello, world!", "  two  spaces ", "It's 12345 o'clock, isn't IT'S?", "a\n\n b\r\n\tc   ", "中文和English混合123", "日本語テスト、。「」",
         "한국어 안녕", "ＡＢＣ！？～", "caf\u00e9 e\u0301 \u0301x", "\u3005\u303b\u3007\u302a \U00016ff0 Han and near Han", "\U00020000\U0002f800", "'\u017fa 'LL 'Ve",
         "x\u2581y", "١٢٣ ½ Ⅷ", "{\"a\": [1, 2.5e-3]}", "\u1e9eSS \u01c5 \u1c90\u10d0", "   \n", "", " ", "\U0001f600\U0001f468\u200d\U0001f469"]


def generator(seed):
    loader = SourceFileLoader("accept", os.path.join(TOP, "benchmarks", "accept", "02-4"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("accept", loader))
    sys.path.insert(0, os.path.join(TOP, "benchmarks", "accept"))
    loader.exec_module(module)
    return module.Generator(seed, ["<0x41>", "<unk>x"], set())


def pages():
    out = []
    for name in ("LICENSE",):  # a page that does not change
        with open(os.path.join(TOP, name), encoding="utf-8") as f:
            out += f.read().split("\n")
    return [line for line in out if line.strip()]


def dump(path, value):
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"))
        f.write("\n")


def sentencepiece(folder):
    import sentencepiece as spm
    model = io.BytesIO()
    mixed = ["привет мир и ещё раз привет", "naïve façade café Straße", "αβγ δοκιμή", "in 2024 there were 1234567 rows", "  indented   text",
             "aaaa aaaaaaaa bbbb abababab"]
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(pages() + mixed * 40), model_writer=model, model_type="bpe", vocab_size=700, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, character_coverage=0.9995,
        split_digits=True, allow_whitespace_only_pieces=True, num_threads=1, minloglevel=2)
    sp = spm.SentencePieceProcessor(model_proto=model.getvalue())
    g, rows = generator(3), []
    texts = FIXED + ["a" * 17, "ab" * 9, "bbb" * 5 + " " * 7, "the the  the", "\u2581\u2581 x"] + [g.string() for _ in range(100)]
    for text in texts:
        if "\u0000" in text or text == "":
            continue  # the library's C strings end there; it gives an empty text no prefix
        rows.append({"text": text, "ids": sp.encode(text)})
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1 for i in range(sp.get_piece_size())]
    dump(os.path.join(folder, "sentencepiece.json"),
         {"tokens": [sp.id_to_piece(i) for i in range(sp.get_piece_size())], "types": kinds,
          "scores": [sp.get_score(i) for i in range(sp.get_piece_size())], "rows": rows})


def splitters(folder):
    from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers
    with open(os.path.join(HERE, "small-gptoss", "tokenizer.json"), encoding="utf-8") as f:
        small = json.load(f)
    cased = "".join("-".join(chr(int(end, 16)) for end in span.split("-")) for span in CASED)

    def split(pattern):
        return pre_tokenizers.Split(Regex(pattern), "isolated")

    deepseek_v3 = [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                   split(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
                         r"|\s*[\r\n]+|\s+(?!\S)|\s+")]
    digits = pre_tokenizers.Digits(individual_digits=True)
    qwen2 = [split(LLAMA3.replace("{1,3}", ""))]
    kinds = {  # names that mean the same, and its steps (None: as in the file)
        ("olmo",): [split(GPT2)], ("gpt-2",): [split(GPT2)], ("refact", "starcoder"): [digits, split(GPT2)],
        ("llama-bpe", "llama3", "llama-v3"): [split(LLAMA3)], ("glm4", "chatglm-bpe", "dbrx"): [split(LLAMA3)],
        ("qwen2",): qwen2, ("hunyuan", "grok-2"): qwen2, ("gpt-4o", "llama4", "minimax-m2"): None,
        ("deepseek-v3", "hunyuan-dense"): deepseek_v3,
        ("deepseek-llm",): [split(r"[\r\n]"), split(r"\s?[" + cased + "]+"), split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"),
                            split(CJK), digits],
        ("deepseek-coder",): [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(CJK), digits],
        ("kimi-k2",): [split(KIMI)],
    }
    g = generator(5)
    texts = FIXED + [g.string() for _ in range(40)]
    out = []
    for names, steps in kinds.items():
        changed = json.loads(json.dumps(small))
        changed["model"]["ignore_merges"] = names[0] in ("llama-bpe", "kimi-k2")
        tokenizer = Tokenizer.from_str(json.dumps(changed))
        if steps is not None:
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        if names[0] in ("olmo", "qwen2"):
            tokenizer.normalizer = normalizers.NFC()
        out.append({"names": names, "ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]})
    dump(os.path.join(folder, "splitters.json"), {"texts": texts, "kinds": out})


def patterns(folder):
    """Classes within classes and scripts, in the dialect of tokenizer.json."""
    from tokenizers import Regex, Tokenizer, pre_tokenizers
    with open(os.path.join(HERE, "small-gptoss", "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = Tokenizer.from_str(f.read())
    g = generator(6)
    texts = FIXED + ["abcdcba xbdx", "αβγ ひらがな カタカナ漢字"] + [g.string() for _ in range(20)]
    out = []
    for pattern in (r"[a-z&&[^b]]+", r"[\w&&[^\d_]]+", r"[\p{L}&&[^\p{Han}]]+", r"[\p{Lo}\p{N}&&[\p{Han}\p{Nd}]]+", r"\p{Hiragana}+|\p{Greek}+",
                    r"[^\p{Han}\s]+", r"\P{Latin}", r"\p{^Greek}+", r"[a-d&&[b-d&&[^c]]]+", r"[\p{Ll}\p{P}&&[^\p{Greek}.]]+", r"[\]a&&[^\]b]]"):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        out.append({"pattern": pattern, "ids": [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]})
    dump(os.path.join(folder, "patterns.json"), {"texts": texts, "patterns": out})


def tiktoken_files(folder):
    import tiktoken
    with open(os.path.join(HERE, "small-gptoss", "tokenizer.json"), encoding="utf-8") as f:
        small = json.load(f)
    printing = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    stand_in = {chr(b): b for b in printing}
    stand_in.update({chr(0x100 + k): b for k, b in enumerate(b for b in range(256) if b not in printing)})
    words = sorted(small["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [bytes(stand_in[c] for c in w) for w, _ in words]
    tokens = [t for t in tokens if len(t) == 1] + [t for t in tokens if len(t) > 1]
    # Tokens that no pair of lower rank makes are found as whole pieces only.
    tokens += [b" bottle", "中文".encode(), b"  "]
    tokens = list(dict.fromkeys(tokens))
    order = list(range(256, len(tokens)))
    random.Random(1).shuffle(order)
    tokens = tokens[:256] + [tokens[k] for k in order]
    ranks = {t: k for k, t in enumerate(tokens)}
    names = {len(ranks): "[BOS]", len(ranks) + 1: "[EOS]", len(ranks) + 2: "<|im_end|>", len(ranks) + 5: "<|im_user|>"}
    special = {names.get(k, "<|reserved_token_%d|>" % k): k for k in range(len(ranks), len(ranks) + 256)}
    encoding = tiktoken.Encoding("small", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)
    os.makedirs(os.path.join(folder, "tiktoken"), exist_ok=True)
    with open(os.path.join(folder, "tiktoken", "tiktoken.model"), "w") as f:
        f.writelines("%s %d\n" % (base64.b64encode(t).decode(), k) for k, t in enumerate(tokens))
    dump(os.path.join(folder, "tiktoken", "tokenizer_config.json"), {
        "added_tokens_decoder": {str(k): {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": True} for k, s in names.items()},
        "bos_token": "[BOS]", "eos_token": "[EOS]", "tokenizer_class": "TikTokenTokenizer"})
    g = generator(4)
    texts = FIXED + ["[BOS]hello[EOS]", "<|im_user|>hi bottle<|im_end|>", "a <|reserved_token_%d|> b" % (len(ranks) + 9), " bottle", "中文", "中文s"]
    texts += [g.string() for _ in range(100)]
    rows = []
    for text in texts:
        ids = encoding.encode(text, allowed_special="all", disallowed_special=())
        rows.append({"text": text, "ids": ids, "decoded": encoding.decode(ids)})
    dump(os.path.join(folder, "tiktoken", "golden.json"), rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sentencepiece(sys.argv[1])
    splitters(sys.argv[1])
    patterns(sys.argv[1])
    tiktoken_files(sys.argv[1])
