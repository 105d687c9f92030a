"""peers.py - runs other engines' own bench programs and ours in turn on the same file, for compare-peers and the accept scripts.

A figure is known by its key (kind, tokens, batch, depth): prefill of so many tokens, or so many decoded tokens of a batch at a depth.
Peers are llama.cpp and its relatives: a folder with llama-bench and llama-batched-bench. Traps that were met:
- llama-batched-bench of ik_llama.cpp feeds one token everywhere, so that all sequences choose the same experts: it must be changed to
  random tokens before it is built, as llama.cpp has it.
- Random Q4_0 weights must have mean 0, or all rows choose the same experts (make-model takes care of it).
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

import measure

RUN_LIMIT_S = 1800
PROMPT_IN_BATCH = 4  # tokens of each sequence before a batch decodes; as few as that, since the depth is 0


class Fault(Exception):
    pass


def output_of(command, env=None, cwd=None):
    try:
        done = subprocess.run(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, check=False, timeout=RUN_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Fault("%s: %s" % (" ".join(command), error))
    if done.returncode != 0:
        raise Fault("%s: exit code %d: %s" % (" ".join(command), done.returncode, done.stderr.strip()[-500:]))
    return done.stdout + done.stderr


class Work:
    """What is measured: of one file, with so many threads."""

    def __init__(self, model, threads, prefill, batches, depths, tokens):
        self.model, self.threads, self.tokens = os.path.abspath(model), threads, tokens
        self.prefill, self.batches, self.depths = prefill, batches, depths

    def keys(self):
        found = [("prefill", p, 1, 0) for p in self.prefill]
        found += [("decode", self.tokens, b, 0) for b in self.batches]
        found += [("decode", self.tokens, 1, d) for d in self.depths if d > 0]
        return found


class Ours:
    name = "tutti"

    def __init__(self, build, machine, options):
        self.program = os.path.join(os.path.abspath(build), "tutti")
        self.machine, self.options = machine, options
        self.records = []  # of each turn: {key: what tutti bench says of it, "limits": of that run}

    def _bench(self, work, options):
        words, env, _ = self.machine.launcher(1, work.threads)
        command = words + [self.program, "bench", work.model, "--threads", str(work.threads), "-n", str(work.tokens), "--repeat", "1",
                           "--json"] + options + self.options
        for line in output_of(command, env).splitlines():
            record = json.loads(line) if line.startswith("{") else {}
            if record.get("record") == "run":
                self.records[-1]["limits"] = record["limits"]
            if record.get("record") in ("prefill", "decode"):
                tokens = record["tokens"] if record["record"] == "prefill" else work.tokens
                self.records[-1][(record["record"], tokens, record["batch"], record["depth"])] = record

    def run(self, work):
        self.records.append({})
        if work.prefill or work.batches:
            self._bench(work, ["-p", ",".join(map(str, work.prefill)) or "0", "-b", ",".join(map(str, work.batches)) or "1", "--depth", "0"])
        deep = [d for d in work.depths if d > 0]
        if deep:
            self._bench(work, ["-p", "0", "-b", "1", "--depth", ",".join(map(str, deep))])
        return {key: record["tokens_per_s"] for key, record in self.records[-1].items() if key != "limits"}


class Llama:
    """llama.cpp or ik_llama.cpp."""

    def __init__(self, name, folder, is_ik):
        self.name, self.is_ik = name, is_ik
        self.log_folder = tempfile.TemporaryDirectory(prefix="tutti-peer-")  # they leave logs where they run
        self.bench, self.batched = (os.path.join(os.path.abspath(folder), p) for p in ("llama-bench", "llama-batched-bench"))
        for program in (self.bench, self.batched):
            if not os.access(program, os.X_OK):
                sys.exit("%s: cannot be run" % program)

    def run(self, work):
        found = {}
        batches = [b for b in work.batches if b > 1]
        if work.prefill or 1 in work.batches or any(d > 0 for d in work.depths):
            found.update(self._run_bench(work))
        if batches:
            found.update(self._run_batched(work, batches))
        return found

    def _output_of(self, command):
        return output_of(command, cwd=self.log_folder.name)

    def _run_bench(self, work):
        common = [self.bench, "-m", work.model, "-t", str(work.threads), "-fa", "1", "-r", "1", "-o", "json"]
        plain = common + ["-p", ",".join(map(str, work.prefill)) or "0", "-n", str(work.tokens) if 1 in work.batches else "0"]
        deep = [d for d in work.depths if d > 0]
        if self.is_ik:
            pairs = [word for depth in deep for word in ("-gp", "%d,%d" % (depth, work.tokens))]
            return self._of_json(self._output_of(plain + ["-fmoe", "1", "-rtr", "1"] + pairs), work)
        commands = [plain] if work.prefill or 1 in work.batches else []
        commands += [common + ["-p", "0", "-n", str(work.tokens), "-d", str(depth)] for depth in deep]
        found = {}
        for command in commands:
            found.update(self._of_json(self._output_of(command), work))
        return found

    @staticmethod
    def _of_json(text, work):
        found = {}
        for entry in json.loads(text[text.index("[\n"):text.rindex("]") + 1]):
            prompt, generated, depth = entry["n_prompt"], entry["n_gen"], entry.get("n_depth", 0)
            if prompt and generated:  # ik: generation after that prompt
                prompt, depth = 0, prompt
            key = ("prefill", prompt, 1, 0) if prompt else ("decode", work.tokens, 1, depth)
            found[key] = entry["avg_ts"]
        return found

    def _run_batched(self, work, batches):
        most = max(batches)
        command = [self.batched, "-m", work.model, "-t", str(work.threads), "-c", str(most * (PROMPT_IN_BATCH + work.tokens) + 64),
                   "-b", "2048", "-ub", "512", "-npp", str(PROMPT_IN_BATCH), "-ntg", str(work.tokens), "-npl", ",".join(map(str, batches))]
        command += ["-fa", "on"] + (["-rtr"] if self.is_ik else [])
        found = {}
        for line in self._output_of(command).splitlines():
            row = re.match(r"^\|\s*%d \|\s*%d \|\s*(\d+) \|" % (PROMPT_IN_BATCH, work.tokens), line)
            if row:
                found[("decode", work.tokens, int(row.group(1)), 0)] = float(line.split("|")[8])
        return found


def add_arguments(p):
    p.add_argument("--ik", metavar="FOLDER", help="programs of ik_llama.cpp, its llama-batched-bench changed to random tokens")
    p.add_argument("--llama", metavar="FOLDER", help="programs of llama.cpp")
    p.add_argument("--pairs", type=int, default=7, help="runs of each engine, in turn")
    p.add_argument("--options", default="", help="more options of tutti bench")


def of_arguments(args):
    found = []
    if args.ik:
        found.append(Llama("ik_llama.cpp", args.ik, True))
    if args.llama:
        found.append(Llama("llama.cpp", args.llama, False))
    if not found:
        sys.exit("give a peer: --ik FOLDER or --llama FOLDER")
    return found


def in_turn(engines, work, pairs, say):
    """samples[engine name][key]: one per turn. Each turn runs all engines; their order changes from turn to turn."""
    samples = {e.name: {k: [] for k in work.keys()} for e in engines}
    for turn in range(pairs):
        for engine in engines if turn % 2 == 0 else engines[::-1]:
            say("turn %d of %d: %s" % (turn + 1, pairs, engine.name))
            found = engine.run(work)
            for key in work.keys():
                if key not in found:
                    raise Fault("%s gave no figure for %s" % (engine.name, name_of(key)))
                samples[engine.name][key].append(found[key])
    return samples


def name_of(key):
    kind, tokens, batch, depth = key
    return "prefill %d" % tokens if kind == "prefill" else "decode, batch %d%s" % (batch, ", depth %d" % depth if depth else "")


def ratios(samples, peer, key):
    """Ours over the peer's, of each turn."""
    return [a / b for a, b in zip(samples[Ours.name][key], samples[peer][key])]


def table(samples, work):
    rows = []
    names = list(samples)
    for key in work.keys():
        row = [name_of(key)]
        for name in names:
            s = measure.spread(samples[name][key])
            row.append("%.1f (%.1f-%.1f)" % (s["median"], s["min"], s["max"]))
        for name in names:
            if name != Ours.name:
                s = measure.spread(ratios(samples, name, key))
                row.append("%.2f (%.2f-%.2f)" % (s["median"], s["min"], s["max"]))
        rows.append(row)
    heads = ["tokens/s"] + names + ["tutti / %s" % n for n in names if n != Ours.name]
    return measure.table(heads, rows)


def median_ratio(samples, peer, key):
    return statistics.median(ratios(samples, peer, key))


def expert_share(record, limits):
    """Of the read bandwidth: what the expert products read in their own time, on the rank where it is least."""
    phase = record["phases"]["experts"]
    rates = [b / (ns * 1e-9) for b, ns in zip(phase["bytes"], phase["ns"]) if ns > 0]
    return min(rates) * len(rates) / limits["read_bytes_per_s"] if rates else 0.0


def shares_table(records, work):
    """What tutti says of itself: medians over the turns."""
    rows = []
    for key in work.keys():
        of = [r[key] for r in records]
        mid = {name: statistics.median(record[name] for record in of) for name in ("bytes_per_token", "share_of_read", "share_of_peak")}
        experts = statistics.median(expert_share(r[key], r["limits"]) for r in records)
        rows.append([name_of(key), "%.1f" % (mid["bytes_per_token"] / 1e6), "%.0f %%" % (100 * mid["share_of_read"]), "%.0f %%" % (100 * experts),
                     "%.0f %%" % (100 * mid["share_of_peak"])])
    return measure.table(["tutti", "MB/token", "of the read bandwidth", "expert products", "of peak arithmetic"], rows)


def plain(records):
    """A turn's records for JSON."""
    return [dict(record, key=list(key)) for key, record in records.items() if key != "limits"] + [{"limits": records["limits"]}]


def to_json(samples):
    return {name: [{"kind": k[0], "tokens": k[1], "batch": k[2], "depth": k[3], "samples": v} for k, v in of.items()]
            for name, of in samples.items()}
