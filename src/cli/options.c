/* options.c - every option of every command, in tables: from a row come the flag, its TUTTI_...
 * variable, the help line and the listing of `tutti info -v`. */
#include "cli.h"
#include <stddef.h>
#include "tutti/linear.h"
#include "tutti/load.h"
#include "tutti/plan.h"

#define AT(field) offsetof(tti_cli_options, field)
#define END                                                                                        \
    {                                                                                              \
        .name = NULL                                                                               \
    }

/* The largest values that make sense; they keep later products far from overflow. */
#define MAX_RANKS 65536.0
#define MAX_TOKENS 1e9
#define MAX_SLOTS 1024
#define MAX_BYTES 1e18
#define MAX_SECONDS 86400.0
#define MAX_SEED 9.2e18

const tt_option tti_cli_general_options[] = {
    {"help", 'h', TT_OPTION_FLAG, AT(help), NULL, 0, 0, NULL, NULL, "print this help"},
    {"json", 0, TT_OPTION_FLAG, AT(json), NULL, 0, 0, NULL, NULL,
     "JSON on stdout and nothing else, one object a line"},
    {"verbose", 0, TT_OPTION_INT, AT(verbose), "1", 0, 3, NULL, "N",
     "0 errors, 1 warnings, 2 one line per rank, 3 details"},
    END,
};

const tt_option tti_cli_layout_options[] = {
    {"dp", 0, TT_OPTION_INT, AT(dp), "0", 0, MAX_RANKS, NULL, "D",
     "data-parallel groups of attention ranks; 0 = choose"},
    {"tp", 0, TT_OPTION_INT, AT(tp), "0", 0, MAX_RANKS, NULL, "T",
     "ranks that split one group's attention; 0 = choose"},
    {"ep", 0, TT_OPTION_INT, AT(ep), "0", 0, MAX_RANKS, NULL, "E",
     "ranks that hold experts; 0 = all"},
    {"etp", 0, TT_OPTION_INT, AT(etp), "0", 0, MAX_RANKS, NULL, "N",
     "ranks of a node that split each expert; 0 = choose"},
    {"split", 0, TT_OPTION_STRING, AT(split), NULL, 0, 0, NULL, "ROLES",
     "who does what: attention:0-5,experts:6-7"},
    {"weights", 0, TT_OPTION_ENUM, AT(weights), "auto", 0, 0, TT_WEIGHTS_CHOICES, "FORMAT",
     "weights in memory; auto = as the checkpoint"},
    {"act", 0, TT_OPTION_ENUM, AT(act), "auto", 0, 0, "auto|" TT_ACT_CHOICES, "FORMAT",
     "rows into products with quantised weights; auto = int8, bf16 for FP8 and MXFP4, f32 if none is quantised"},
    {"wire", 0, TT_OPTION_ENUM, AT(wire), "auto", 0, 0, "auto|" TT_WIRE_CHOICES, "FORMAT",
     "rows on their way to experts; auto = as experts round them anyway, else f32"},
    {"wire-back", 0, TT_OPTION_ENUM, AT(wire_back), "f32", 0, 0, TT_WIRE_CHOICES, "FORMAT",
     "results on their way back"},
    {"exchange", 0, TT_OPTION_ENUM, AT(route), "auto", 0, 0, "auto|direct|node", "ROUTE",
     "to other nodes: direct = a message to every expert rank, node = one to every node with each row once, auto = node if nodes have several"},
    {"combine", 0, TT_OPTION_ENUM, AT(combine), "exact", 0, 0, "exact|reduced", "HOW",
     "results from other nodes: exact = of each expert, the same bits on every layout, reduced = summed there first"},
    {"exchange-chunk", 0, TT_OPTION_INT, AT(exchange_chunk), "0", 0, MAX_TOKENS, NULL, "N",
     "exchange at most N rows of a rank at once: experts begin with the first ones while others fly; 0 = all of a step"},
    {"overlap-rows", 0, TT_OPTION_INT, AT(overlap_rows), "-1", -1, MAX_TOKENS, NULL, "N",
     "steps of N rows and more in two parts, one's exchange behind the other; 0 = none, -1 = where that proves faster, on several nodes"},
    {"balance", 0, TT_OPTION_STRING, AT(balance), "off", 0, 0, NULL, "HOW",
     "experts on ranks: off = each rank its part in order, static:FILE = as a placement says, auto = copies of busy ones follow the load"},
    {"placement", 0, TT_OPTION_STRING, AT(placement), NULL, 0, 0, NULL, "FILE",
     "where experts are when the run begins, as tutti balance writes it; with auto they move on from there"},
    {"load-stats", 0, TT_OPTION_STRING, AT(load_stats), NULL, 0, 0, NULL, "FILE",
     "place experts by counts of an earlier run (--save-stats) when this one begins"},
    {"spare-slots", 0, TT_OPTION_INT, AT(spare_slots), "-1", -1, MAX_SLOTS, NULL, "N",
     "room on each rank for copies of busy experts, in each layer; -1 = 2 with auto or load-stats, else none"},
    {"balance-steps", 0, TT_OPTION_INT, AT(balance_steps), "0", 0, MAX_TOKENS, NULL, "N",
     "with auto: steps that are counted before experts may move; 0 = 64"},
    {"balance-moves", 0, TT_OPTION_INT, AT(balance_moves), "0", 0, MAX_TOKENS, NULL, "N",
     "with auto: experts copied at most from one count to the next; 0 = one for each spare slot, and two a layer"},
    {"balance-rate", 0, TT_OPTION_BYTES, AT(balance_rate), "0", 0, MAX_BYTES, NULL, "BYTES",
     "with auto: bytes a second out of a rank while experts move; 0 = 256M"},
    {"kv", 0, TT_OPTION_ENUM, AT(kv), "f32", 0, 0, TT_KV_CHOICES, "FORMAT",
     "cached keys and values"},
    {"replicate", 0, TT_OPTION_ENUM, AT(replicate), "auto", 0, 0, TT_REPLICATE_CHOICES, "HOW",
     "dense weights: numa = on every rank, node = once per node, auto = numa if that fits"},
    {"context", 0, TT_OPTION_INT, AT(context), "0", 0, MAX_TOKENS, NULL, "N",
     "tokens per sequence; 0 = what the model allows"},
    {"kv-memory", 0, TT_OPTION_BYTES, AT(kv_memory), "0", 0, MAX_BYTES, NULL, "BYTES",
     "KV cache per rank; 0 = what batch and context need"},
    {"max-batch", 0, TT_OPTION_INT, AT(max_batch), "0", 0, MAX_TOKENS, NULL, "N",
     "sequences decoded at once; 0 = as many as are given, at most 32"},
    {"prefill-chunk", 0, TT_OPTION_INT, AT(prefill_chunk), "0", 0, MAX_TOKENS, NULL, "N",
     "prompt tokens per group and step; 0 = 512"},
    END,
};

const tt_option tti_cli_machine_options[] = {
    {"threads", 0, TT_OPTION_INT, AT(threads), "0", 0, 1024, NULL, "N",
     "threads per rank; 0 = this rank's share of the cores"},
    {"kernels", 0, TT_OPTION_ENUM, AT(kernels), "fma", 0, 0, "fma|amx-bf16|blas", "SET",
     "kernel set; amx-bf16 rounds rows that meet bf16 weights, blas gives no equal bits"},
    {"progress", 0, TT_OPTION_ENUM, AT(progress), "auto", 0, 0, "auto|thread|polled|caller", "MODE",
     "who moves messages while ranks compute"},
    {"deadline", 0, TT_OPTION_FLOAT, AT(deadline_s), "60", 0.1, MAX_SECONDS, NULL, "S",
     "seconds that any wait for a peer may take"},
    {"memory-limit", 0, TT_OPTION_BYTES, AT(memory_limit), "0", 0, MAX_BYTES, NULL, "BYTES",
     "use no more than this on a node; 0 = what it has"},
    {"trace", 0, TT_OPTION_STRING, AT(trace), NULL, 0, 0, NULL, "FILE",
     "write a timeline of all ranks for ui.perfetto.dev"},
    {"log-view", 0, TT_OPTION_FLAG, AT(log_view), NULL, 0, 0, NULL, NULL,
     "a table of phases on stderr: calls, bytes, time over ranks"},
    {"quiet", 'q', TT_OPTION_FLAG, AT(quiet), NULL, 0, 0, NULL, NULL, "no figures on stderr"},
    END,
};

const tt_option tti_cli_run_options[] = {
    {"prompt", 'p', TT_OPTION_LIST, AT(prompt), NULL, 0, 0, NULL, "TEXT",
     "text to go on with (may be repeated)"},
    {"chat", 0, TT_OPTION_LIST, AT(chat), NULL, 0, 0, NULL, "TEXT",
     "a user's message, put in the model's chat template"},
    {"system", 0, TT_OPTION_STRING, AT(system), NULL, 0, 0, NULL, "TEXT",
     "a system message before each --chat"},
    {"chat-args", 0, TT_OPTION_STRING, AT(chat_args), NULL, 0, 0, NULL, "JSON",
     "variables of the chat template, as {\"enable_thinking\": false}"},
    {"ids", 0, TT_OPTION_LIST, AT(ids), NULL, 0, 0, NULL, "1,2,3", "a prompt of token ids"},
    {"prompts", 0, TT_OPTION_STRING, AT(prompts), NULL, 0, 0, NULL, "FILE",
     "JSON lines with prompt, ids or messages; - is stdin"},
    {"n", 'n', TT_OPTION_INT, AT(n), "256", -1, MAX_TOKENS, NULL, "N",
     "tokens to generate; -1 = what the context leaves"},
    {"temperature", 0, TT_OPTION_FLOAT, AT(temperature), "0", 0, 1e6, NULL, "F",
     "0 = the most likely token; default as the model says"},
    {"top-k", 0, TT_OPTION_INT, AT(top_k), "0", 0, MAX_TOKENS, NULL, "N",
     "draw from the N likeliest tokens; 0 = off"},
    {"top-p", 0, TT_OPTION_FLOAT, AT(top_p), "1", 0, 1, NULL, "F",
     "draw from the likeliest tokens that make up F; 1 = off"},
    {"min-p", 0, TT_OPTION_FLOAT, AT(min_p), "0", 0, 1, NULL, "F",
     "drop tokens below F times the likeliest; 0 = off"},
    {"seed", 0, TT_OPTION_INT, AT(seed), NULL, 0, MAX_SEED, NULL, "N",
     "of the draws; default: a fresh one, printed at the end"},
    END,
};

const tt_option tti_cli_score_options[] = {
    {"ids-file", 0, TT_OPTION_STRING, AT(ids_file), NULL, 0, 0, NULL, "FILE",
     "token ids; each line is a sequence"},
    {"text-file", 0, TT_OPTION_STRING, AT(text_file), NULL, 0, 0, NULL, "FILE",
     "a text, cut into windows of the context (--context N: shorter)"},
    {"logits", 0, TT_OPTION_STRING, AT(logits), NULL, 0, 0, NULL, "OUT.npy",
     "write logits, f32 [tokens][vocabulary]"},
    END,
};

const tt_option tti_cli_tokenize_options[] = {
    {"decode", 0, TT_OPTION_FLAG, AT(decode), NULL, 0, 0, NULL, NULL, "ids to text"},
    {"special", 0, TT_OPTION_FLAG, AT(special), NULL, 0, 0, NULL, NULL,
     "add the special tokens that a prompt gets"},
    {"skip-special", 0, TT_OPTION_FLAG, AT(skip_special), NULL, 0, 0, NULL, NULL,
     "with --decode: leave special tokens out"},
    {"chat", 0, TT_OPTION_SWITCH, AT(chat_list), NULL, 0, 0, NULL, NULL,
     "stdin is a conversation in JSON: a list of messages with role and content"},
    {"text", 0, TT_OPTION_FLAG, AT(text), NULL, 0, 0, NULL, NULL,
     "with --chat: print the text that the template makes, not its ids"},
    {"jsonl", 0, TT_OPTION_FLAG, AT(jsonl), NULL, 0, 0, NULL, NULL,
     "a JSON string (or list) per line in, one result per line out"},
    END,
};

const tt_option tti_cli_info_options[] = {
    {"list-options", 'v', TT_OPTION_FLAG, AT(list_options), NULL, 0, 0, NULL, NULL,
     "also list every option with its variable"},
    END,
};

const tt_option tti_cli_plan_options[] = {
    {"ranks", 0, TT_OPTION_INT, AT(ranks), "1", 1, MAX_RANKS, NULL, "N", "ranks in all"},
    {"nodes", 0, TT_OPTION_INT, AT(nodes), "1", 1, MAX_RANKS, NULL, "M",
     "nodes; ranks are dealt in blocks, counts differ by at most one"},
    {"memory", 0, TT_OPTION_BYTES, AT(memory), "0", 0, MAX_BYTES, NULL, "BYTES",
     "memory of one node; 0 = do not check that it fits"},
    {"batch", 0, TT_OPTION_INT, AT(batch), "0", 0, MAX_TOKENS, NULL, "B",
     "sequences decoded at once; 0 = --max-batch, or 1"},
    END,
};

const tt_option tti_cli_shape_options[] = {
    {"shape", 0, TT_OPTION_STRING, AT(shape), NULL, 0, 0, NULL, "NAME",
     "instead of MODEL: random weights in the shape of a released model; an unknown NAME lists them"},
    {"layers", 0, TT_OPTION_INT, AT(layers), "0", 0, MAX_TOKENS, NULL, "N",
     "with --shape: so many layers; 0 = all"},
    END,
};

const tt_option tti_cli_bench_options[] = {
    {"pp", 'p', TT_OPTION_STRING, AT(pp), "512", 0, 0, NULL, "LIST",
     "prompts of so many tokens, as 128,512; 0 = none"},
    {"tg", 'n', TT_OPTION_INT, AT(tg), "64", 0, MAX_TOKENS, NULL, "N",
     "tokens that each sequence generates in a sample; 0 = no decoding"},
    {"batches", 'b', TT_OPTION_STRING, AT(batches), "1,4,16,32", 0, 0, NULL, "LIST",
     "sequences decoded at once"},
    {"depth", 'd', TT_OPTION_STRING, AT(depth), "0", 0, 0, NULL, "LIST",
     "tokens before the first generated one, as 0,4096; their keys and values are made up"},
    {"repeat", 'r', TT_OPTION_INT, AT(repeat), "3", 1, 100000, NULL, "N", "samples of each"},
    {"svg", 0, TT_OPTION_STRING, AT(svg), NULL, 0, 0, NULL, "FILE",
     "draw tokens/s of decoding over the batch"},
    END,
};

const tt_option tti_cli_convert_options[] = {
    {"weights", 0, TT_OPTION_ENUM, AT(weights), "auto", 0, 0, TT_WEIGHTS_CHOICES, "FORMAT",
     "weights in OUT; auto = as the checkpoint"},
    {"threads", 0, TT_OPTION_INT, AT(threads), "0", 0, 1024, NULL, "N",
     "threads that pack; 0 = all cores"},
    {"quiet", 'q', TT_OPTION_FLAG, AT(quiet), NULL, 0, 0, NULL, NULL, "no figures on stderr"},
    END,
};

const tt_option tti_cli_environment[] = {
    {"datadir", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "DIR",
     "where models/tiny-moe is"},
    {"cpu-hide", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "LIST",
     "instruction sets not to use: avx2,avx512,vnni,amx"},
    {"fake-nodes", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "LIST",
     "for tests: the node of each rank, or ranks per node"},
    {"inject-delay-us", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "N",
     "for tests: messages become visible this much later"},
    {"inject-mb-s", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "N",
     "for tests: exchanges between nodes go at so many megabytes a second out of each rank"},
    {"inject-ferry", 0, TT_OPTION_STRING, AT(environment_only), NULL, 0, 0, NULL, "WHAT",
     "for tests: fail:RANK damages what a rank sends of experts that move, stall:RANK keeps it from sending"},
    END,
};

const tt_option *const tti_cli_all_tables[] = {
    tti_cli_general_options, tti_cli_layout_options, tti_cli_machine_options,
    tti_cli_run_options,     tti_cli_score_options,  tti_cli_tokenize_options,
    tti_cli_info_options,    tti_cli_plan_options,   tti_cli_bench_options,
    tti_cli_shape_options,   tti_cli_environment,    NULL,
};

const char *const tti_cli_all_headings[] = {
    "general", "layout and formats", "machine", "run", "score", "tokenize", "info", "plan", "bench",
    "shape",   "environment only",
};
