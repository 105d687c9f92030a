/* quantization.h - what a checkpoint's configuration says of how its matrices are stored.
 * Threads: any. MPI: none. */
#ifndef TUTTI_SRC_MODEL_QUANTIZATION_H
#define TUTTI_SRC_MODEL_QUANTIZATION_H
#include <jansson.h>
#include "tutti/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum tti_quant_method {
    TTI_QUANT_NONE, /* the configuration says nothing */
    TTI_QUANT_FP8,
    TTI_QUANT_COMPRESSED,
    TTI_QUANT_MXFP4,
    TTI_QUANT_GPTQ,
    TTI_QUANT_AWQ
} tti_quant_method;
/* What shares one scale. */
typedef enum tti_quant_strategy {
    TTI_QUANT_ANY,     /* not stated: the tensors show it */
    TTI_QUANT_TENSOR,  /* the whole matrix */
    TTI_QUANT_CHANNEL, /* an output */
    TTI_QUANT_GROUP,   /* `group` inputs of an output */
    TTI_QUANT_BLOCK    /* `group` inputs of `block` outputs */
} tti_quant_strategy;

typedef struct tti_quant_rule {
    int bits;
    bool is_float, symmetric;
    tti_quant_strategy strategy;
    int64_t group, block;
} tti_quant_rule;

enum { TTI_QUANT_RULES = 16 };
/* All-zero: not quantised. */
typedef struct tti_quantization {
    tti_quant_method method;
    tti_quant_rule rule[TTI_QUANT_RULES]; /* a matrix is stored by one of rule[n_rules] */
    int n_rules;
    bool zeros_less_one; /* GPTQ: zero points are stored less one */
    bool act_order;      /* GPTQ: inputs belong to groups in an order of their own */
    bool varies;         /* some modules are stored by other rules, which are not read */
} tti_quantization;

/* Reads quantization_config of a configuration; absent is none. `what` names the file. Errors:
 * TT_ERR_FILE; TT_ERR_UNSUPPORTED naming an unknown method, format or version. */
tt_status tti_quantization_read(const char *what, const json_t *config, tti_quantization *q_out);

#endif
