"""What a delay on every message costs a step, and what could have hidden it; for 01-9 and 04-4."""
import json
import statistics

import measure

ALLOWED = 0.10  # of the step without delay


def far_expert_ns(path):
    """Time of expert passes that need other ranks' rows, per layer: mean over ranks of the median over layers."""
    with open(path) as f:
        events = [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]
    of_rank = {}
    for e in events:
        if e["cat"] in ("dispatch", "combine") or e["name"] == "experts":
            of_rank.setdefault(e["pid"], []).append(e)
    means = []
    for spans in of_rank.values():
        far, layer_ns = [], 0.0
        for e in sorted(spans, key=lambda e: e["ts"]):
            if e["name"] == "experts":
                layer_ns += e["dur"] * 1e3
            elif e["cat"] == "combine":
                far.append(layer_ns)
            else:
                layer_ns = 0.0
        means.append(statistics.median(far) if far else 0.0)
    return statistics.mean(means) if means else 0.0


def waiting_ns(lane):
    """Of a step: time with nothing to compute, mean over ranks."""
    return sum(statistics.mean(measure.phase_ns_per_step(lane, "wait-" + of)) for of in ("dispatch", "combine"))


def hidden(layers, record, null, independent_ns):
    """Of the delay that independent work is long enough to cover, what nobody waited for. Lanes differ by themselves (their weights lie in other
    places): so waiting is compared with the pair that has no delay. That pair tells the noise, too."""
    still, late = record["lanes"]
    d_ns = late["delay_us"] * 1e3
    could = layers * min(2 * d_ns, independent_ns)
    bias_ns = waiting_ns(null["lanes"][1]) - waiting_ns(null["lanes"][0])
    waited_ns = waiting_ns(late) - waiting_ns(still) - bias_ns
    return {"delay_ns": d_ns, "coverable_ns": could, "waited_more_ns": waited_ns,
            "hidden_share": (layers * 2 * d_ns - waited_ns) / could if could > 0 else None}


def judge(run, records, far_ns):
    """One entry per delay."""
    layers = run["model"]["moe_layers"]
    null = records[0]["lanes"][0]
    shared_ns = statistics.mean(measure.phase_ns_per_step(null, "shared")) / layers
    expert_ns = statistics.mean(measure.phase_ns_per_step(null, "experts")) / layers
    own_ns = max(0.0, expert_ns - far_ns)
    cases, noise_ns = [], None
    for record in records:
        still, late = record["lanes"]
        d_ns = late["delay_us"] * 1e3
        pairs = [b - a for a, b in zip(measure.block_medians(still), measure.block_medians(late))]
        still_ns = measure.spread(measure.block_medians(still))
        added = measure.spread(pairs)
        independent_ns = shared_ns + own_ns
        bound_ns = layers * max(0.0, 2 * d_ns - independent_ns) + ALLOWED * still_ns["median"]
        if noise_ns is None:
            noise_ns = added["quartiles"][1] - added["quartiles"][0]
        read = measure.phase_bytes_per_step(still, "experts")
        cases.append({
            "delay_ns": d_ns, "step_ns": still_ns, "delayed_step_ns": measure.spread(measure.block_medians(late)),
            "added_ns": added, "pairs_ns": pairs, "bound_ns": bound_ns,
            "bound_of_shared_alone_ns":
                layers * max(0.0, 2 * d_ns - shared_ns) + ALLOWED * still_ns["median"],
            "covered_share": 1 - added["median"] / (layers * 2 * d_ns) if d_ns else None,
            "is_in_noise": layers * 2 * d_ns < 2 * noise_ns,
            "holds": added["median"] <= bound_ns if d_ns else None,  # without a delay there is only noise
            "expert_bytes_ratio": measure.phase_bytes_per_step(late, "experts") / read if read else None})
    return {"shared_ns_per_layer": shared_ns, "own_experts_ns_per_layer": own_ns, "moe_layers": layers,
            "noise_ns": noise_ns, "cases": cases}
