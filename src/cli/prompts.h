/* prompts.h - what rank 0 is asked to generate: prompts from all options and files, as ids, each
 * with its own settings.
 * MPI: none; rank 0 alone calls this. */
#ifndef TTI_CLI_PROMPTS_H
#define TTI_CLI_PROMPTS_H
#include "cli.h"
#include "tutti/engine.h"
#include "tutti/tokenizer.h"

typedef struct tti_cli_prompt {
    tt_ids ids;
    int64_t max_new; /* -1 = what the context leaves */
    tt_sampling sampling;
} tti_cli_prompt;

typedef struct tti_cli_prompts {
    tti_cli_prompt *item; /* item[n], owned */
    size_t n, capacity;
    uint64_t seed; /* of all prompts without one of their own */
} tti_cli_prompts;

/* Reads and encodes all prompts. tokenizer may be NULL (a checkpoint without one): then only ids
 * can be given. `generation` gives the sampling defaults (see sampling_defaults in prompts.c).
 * Errors: TT_ERR_USAGE, TT_ERR_FILE, TT_ERR_REQUEST (a prompt that is empty or longer than
 * context), those of the tokenizer. prompts is valid for tti_cli_prompts_fini in any case. */
tt_status tti_cli_prompts_gather(const tti_cli_options *options, const tt_tokenizer *tokenizer,
                                 const tt_generation *generation, int64_t V, int64_t context,
                                 tti_cli_prompts *prompts);
void tti_cli_prompts_fini(tti_cli_prompts *prompts);

#endif
