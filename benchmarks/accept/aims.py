"""aims.py - what the scripts that hold tutti against a peer share: files of random weights, turns, verdicts, JSON."""
import os
import subprocess
import sys

import measure
import peers

TOKENS = 32  # decoded per figure
TYPES = {"int8": "Q8_0", "int4": "Q4_0"}
CONTEXT = 40960  # tokens that make-model allows: a file made by one that allowed fewer has another name


def file_of(session, shape, weights):
    """SHAPE or SHAPE:LAYERS in one GGUF file of that type, made once."""
    name, _, layers = shape.partition(":")
    path = os.path.join(session.work, "%s-%s-%d.gguf" % (shape.replace(":", "-"), TYPES[weights], CONTEXT))
    if not os.path.exists(path):
        os.makedirs(session.work, exist_ok=True)
        session.say("making " + path)
        command = [session.make_model, "--shape", name, "--weights", weights, "--out", path + ".part.gguf"]
        command += ["--layers", layers] if layers else []
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode != 0:
            sys.exit("no file of shape '%s'" % shape)
        os.replace(path + ".part.gguf", path)
    return path


def verdicts(records, samples, engines, work, floors):
    """What misses its floor: texts."""
    missed = []
    for peer in engines[1:]:
        for key in work.keys():
            ratio = peers.median_ratio(samples, peer.name, key)
            least = floors["ratio"](key) if callable(floors["ratio"]) else floors["ratio"]
            if ratio < least:
                missed.append("%s: %.2f of %s, wanted %.2f" % (peers.name_of(key), ratio, peer.name, least))
    for key in work.keys() if floors["share"] else []:
        share = measure.spread([r[key]["share_of_read"] for r in records])["median"]
        if share < floors["share"]:
            missed.append("%s: %.0f %% of the read bandwidth, wanted %.0f %%" % (peers.name_of(key), 100 * share, 100 * floors["share"]))
    for key in work.keys() if floors["expert_share"] else []:
        share = measure.spread([peers.expert_share(r[key], r["limits"]) for r in records])["median"]
        if share < floors["expert_share"]:
            missed.append("%s: expert products at %.0f %% of the read bandwidth, wanted %.0f %%"
                          % (peers.name_of(key), 100 * share, 100 * floors["expert_share"]))
    return missed


def main(name, text, shapes, threads, prefill=(), batches=(), depths=(), least_ratio=1.0, least_share=None, least_expert_share=None):
    p = measure.parser(text)
    p.add_argument("--shapes", default=shapes, help="of make-model, each SHAPE or SHAPE:LAYERS")
    p.add_argument("--weights", default="int8,int4", help="types of the files")
    p.add_argument("-t", dest="threads", default=threads, help="threads, as 1,2; default: all cores")
    peers.add_arguments(p)
    args = p.parse_args()
    session = measure.Session(name, args)
    ours = peers.Ours(args.build, session.machine, args.options.split())
    engines = [ours] + peers.of_arguments(args)
    missed = []
    for shape in args.shapes.split(","):
        for weights in args.weights.split(","):
            model = file_of(session, shape, weights)
            for n in measure.numbers(args.threads or str(session.machine.cores)):
                work = peers.Work(model, n, list(prefill), list(batches), list(depths), TOKENS)
                title = "shape %s, %s (%s), %d threads" % (shape, weights, TYPES[weights], n)
                ours.records = []
                try:
                    samples = peers.in_turn(engines, work, args.pairs, session.say)
                except peers.Fault as fault:
                    sys.exit("%s: %s" % (name, fault))
                print("%s\n\n%s\n" % (title, peers.table(samples, work)), flush=True)
                print(peers.shares_table(ours.records, work) + "\n", flush=True)
                missed += ["%s, %s" % (title, m) for m in verdicts(
                    ours.records, samples, engines, work,
                    {"ratio": least_ratio, "share": least_share, "expert_share": least_expert_share})]
                session.result["runs"].append({"shape": shape, "weights": weights, "threads": n, "samples": peers.to_json(samples),
                                               "ours": [peers.plain(r) for r in ours.records]})
                session.save()
    for text in missed:
        print("missed: " + text)
    print("the aim is %s" % ("missed" if missed else "met"))
    sys.exit(1 if missed else 0)
