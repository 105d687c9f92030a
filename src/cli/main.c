/* main.c - finds the command, parses its options and calls it. `--help`, `--version` and the
 * commands info, plan, tokenize and convert never start MPI, so they work on a login node. */
#include "config.h"
#include "cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tutti/cpu.h"
#include "tutti/linear.h"
#include "tutti/log.h"
#include "ttk.h"

enum { MAX_TABLES = 6 };

typedef struct command {
    const char *name;
    const char *usage;
    const char *summary;
    const char *notes;                   /* printed below the options; NULL = none */
    const tt_option *tables[MAX_TABLES]; /* NULL-ended */
    int (*call)(const tti_cli_call *call);
    int max_words; /* MODEL, or MODEL OUT */
    bool on_ranks; /* starts MPI; an error must be told to all ranks */
} command;

static const command commands[] = {
    {"run",
     "tutti run [MODEL] [-p TEXT | --chat TEXT | --ids 1,2,3 | --prompts FILE] [-n N]",
     "generate text: on stdout of rank 0, figures on stderr",
     "Without MODEL the model that ships with tutti runs. Without a prompt stdin is one prompt.\n"
     "Prompts run as one queue, in the order -p, --chat, --ids, --prompts. A line of --prompts is\n"
     "  {\"prompt\": TEXT | \"ids\": [..] | \"messages\": [{\"role\": .., \"content\": ..}],\n"
     "   \"tools\": [..], \"chat_template_kwargs\": {..}: beside messages,\n"
     "   \"n\" (or \"max_tokens\"), \"seed\", \"temperature\", \"top_p\", \"top_k\", \"min_p\": "
     "its own values}\n"
     "Example: mpirun -n 4 tutti run --chat 'What is hwloc?'\n",
     {tti_cli_run_options, tti_cli_layout_options, tti_cli_machine_options, tti_cli_general_options,
      NULL},
     tti_cli_run,
     1,
     true},
    {"score",
     "tutti score MODEL (--ids-file FILE | --text-file FILE) [--logits OUT.npy]",
     "mean negative log-likelihood of given tokens",
     "A text is cut into windows of the context; each is a sequence of its own, with the special\n"
     "tokens that a prompt begins with.\n"
     "Example: mpirun -n 2 tutti score models/tiny-moe --text-file README.md\n",
     {tti_cli_score_options, tti_cli_layout_options, tti_cli_machine_options,
      tti_cli_general_options, NULL},
     tti_cli_score,
     1,
     true},
    {"tokenize",
     "tutti tokenize MODEL [--decode] [--special] [--chat [--text]] [--json | --jsonl]",
     "text on stdin to ids on stdout, or back",
     "MODEL is a folder with tokenizer.json, such a file, or a GGUF file.\n",
     {tti_cli_tokenize_options, tti_cli_general_options, NULL},
     tti_cli_tokenize,
     1,
     false},
    {"info",
     "tutti info [MODEL|--shape NAME] [-v] [--ranks N --nodes M]",
     "what this build, this machine or a model is",
     "Of a model: architecture, parameters, formats, and memory and KV bytes per token of each rank\n"
     "of the layout that the options give (one rank by default).\n",
     {tti_cli_info_options, tti_cli_shape_options, tti_cli_plan_options, tti_cli_layout_options,
      tti_cli_general_options, NULL},
     tti_cli_info,
     1,
     false},
    {"plan",
     "tutti plan MODEL|--shape NAME --ranks N --nodes M --memory BYTES [--batch B] [--context C]",
     "layout, memory per rank and predicted speed, without starting anything",
     "Example: tutti plan models/tiny-moe --ranks 8 --nodes 2 --memory 64G\n",
     {tti_cli_plan_options, tti_cli_shape_options, tti_cli_layout_options, tti_cli_general_options,
      NULL},
     tti_cli_plan,
     1,
     false},
    {"bench",
     "tutti bench MODEL | --shape NAME [--layers N] [-p 128,512] [-n 64] [-b 1,4,16,32] [--depth 0,4096]",
     "time prompts and decoding of a model, or of a shape with random weights",
     "Prints tokens/s beside what the machine could do. Without weights at hand --shape makes random ones in\n"
     "memory, in the format that --weights asks for.\n"
     "Example: mpirun -n 4 tutti bench --shape c --layers 6 --weights int8 -b 1,8,32 --depth 0,4096\n",
     {tti_cli_bench_options, tti_cli_shape_options, tti_cli_layout_options, tti_cli_machine_options,
      tti_cli_general_options, NULL},
     tti_cli_bench,
     1,
     true},
    {"convert",
     "tutti convert MODEL OUT [--weights FORMAT]",
     "write a packed checkpoint, which loads by copying",
     "OUT must not exist. It gets the weights, packed, and a copy of all that is no weights.\n"
     "Example: tutti convert models/tiny-moe packed --weights bf16\n",
     {tti_cli_convert_options, tti_cli_general_options, NULL},
     tti_cli_convert,
     2,
     false},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

/* Named in the manual, but not in this version. */
static const char *const planned[] = {"balance", "serve", "batch"};
enum { N_PLANNED = sizeof(planned) / sizeof(planned[0]) };

static void print_help(FILE *out)
{
    fputs("tutti runs Mixture-of-Experts language models over MPI on CPU clusters.\n\n"
          "usage: tutti COMMAND [MODEL] [OPTIONS]      tutti COMMAND --help\n"
          "       mpirun -n 4 tutti run MODEL -p TEXT\n"
          "       tutti --version\n\n"
          "commands:\n",
          out);
    for (int i = 0; i < N_COMMANDS; i++) {
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    fputs(
        "\nMODEL is a folder with config.json, *.safetensors and tokenizer.json, or a GGUF file.\n"
        "Options --name have environment twins TUTTI_NAME; `tutti info -v` lists them.\n"
        "Exit codes: 0 done, 1 run-time failure, 2 usage, 3 bad model or input file,\n"
        "4 a peer failed or timed out.\n",
        out);
}

static void print_command_help(const command *c)
{
    printf("%s\n  %s\n\noptions:\n", c->usage, c->summary);
    for (int i = 0; c->tables[i]; i++) {
        tt_options_help(c->tables[i], stdout);
    }
    if (c->notes) {
        printf("\n%s", c->notes);
    }
}

static const command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static tt_status fail_unknown(const char *name)
{
    for (int i = 0; i < N_PLANNED; i++) {
        if (strcmp(name, planned[i]) == 0) {
            return TT_FAIL(TT_ERR_USAGE, "command '%s' is not built yet", name);
        }
    }
    return TT_FAIL(TT_ERR_USAGE,
                   "unknown command '%s'; known are run, score, tokenize, info, plan, "
                   "bench and convert "
                   "(`tutti --help`)",
                   name);
}

static int finish_printing(void)
{
    tt_status status = tti_cli_flush_stdout();
    return status == TT_OK ? 0 : tti_cli_fail_alone(status);
}

static tt_status use_kernels(ttk_set set)
{
    TT_CHECK(ttk_use_set(set, tt_cpu_flags()), TT_ERR_UNSUPPORTED,
             "--kernels amx-bf16 needs AMX, which %s lacks or may not use", tt_cpu_name());
    if (set == TTK_SET_BLAS) {
        TT_TRY(tt_linear_use_blas());
        if (tti_cli_launcher_rank() == 0) {
            tt_log(TT_LOG_WARN,
                   "--kernels blas: results depend on the layout and on what else is in a batch");
        }
    }
    return TT_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return tti_cli_fail_alone(TT_FAIL(
            TT_ERR_USAGE, "no command given; try `tutti --help`, or `tutti run --chat 'Hello'`"));
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return finish_printing();
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("tutti %s\n", PACKAGE_VERSION);
        return finish_printing();
    }
    const command *c = find_command(argv[1]);
    if (!c) {
        return tti_cli_fail_alone(fail_unknown(argv[1]));
    }

    static tti_cli_options options;
    const char **word = calloc((size_t)argc, sizeof(*word));
    if (!word) {
        return tti_cli_fail_alone(TT_FAIL(TT_ERR_NOMEM, "no memory for %d arguments", argc));
    }
    int n_words = 0;
    tt_status parsed = tt_options_parse(c->tables, &options, argc - 1, argv + 1, word, &n_words);
    if (parsed == TT_OK && options.help) {
        print_command_help(c);
        free(word);
        return finish_printing();
    }
    if (parsed == TT_OK && n_words > c->max_words) {
        parsed = TT_FAIL(TT_ERR_USAGE, "'%s' is one word too many after MODEL '%s'",
                         word[c->max_words], word[0]);
    }
    if (parsed == TT_OK) {
        tt_log_set_level((tt_log_level)options.verbose);
        if (tti_cli_launcher_rank() == 0) {
            tt_options_warn_unknown_environment(tti_cli_all_tables);
        }
    }
    ttk_init(tt_cpu_flags());
    if (parsed == TT_OK) {
        parsed = use_kernels((ttk_set)options.kernels); /* numbered as the option's words */
    }
    /* An error that other ranks may not have made must reach them through MPI; alone there is
     * nobody to tell. */
    int code;
    if (parsed != TT_OK && (!c->on_ranks || tti_cli_launcher_size() <= 1)) {
        code = tti_cli_fail_alone(parsed);
    } else {
        tti_cli_call call = {&options, word, n_words, parsed};
        code = c->call(&call);
    }
    free(word);
    return code;
}
