/* info.c - what this build, this machine and a model are, for people and (--json) for programs. No
 * MPI_Init: it runs on a login node. The facts are gathered into one JSON object first; the text
 * form is printed from it, so the two cannot disagree. */
#include "config.h"
#include <jansson.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include "cli.h"
#include "describe.h"
#include "tutti/cpu.h"
#include "tutti/model.h"
#include "tutti/plan.h"
#include "tutti/topology.h"
#include "ttk.h"

enum { ENV_NAME_BYTES = 64 };

static json_t *build_json(void)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;
    MPI_Get_library_version(mpi, &n); /* legal before MPI_Init (MPI-3.1, section 8.1) */
    mpi[strcspn(mpi, "\n")] = 0;
#if TT_DEBUG
    const char *kind = "debug";
#else
    const char *kind = "optimised";
#endif
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "version", PACKAGE_VERSION, "build",
                     kind, "compiler", TT_CONFIGURE_CC " " __VERSION__, "flags",
                     TT_CONFIGURE_CFLAGS, "kernels", ttk_set_name(), "isa", ttk.isa, "mpi", mpi);
}

static tt_status machine_json(json_t **json_out)
{
    tt_topology *topology = NULL;
    TT_TRY(tt_topology_create(NULL, &topology));
    const tt_topology_info *i = tt_topology_get_info(topology);
    *json_out = json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:i, s:I, s:I, s:I, s:I}", "cpu", tt_cpu_name(), "cores",
        i->n_cores, "cpus_allowed", i->n_cpus, "cpus_host", i->n_cpus_host, "cpu_quota",
        i->cpu_quota, "numa_nodes", i->n_nodes, "l3_bytes", (json_int_t)i->l3_bytes, "memory_bytes",
        (json_int_t)i->memory_bytes, "memory_limit_bytes", (json_int_t)i->memory_limit_bytes,
        "memory_available_bytes", (json_int_t)i->memory_available_bytes);
    tt_topology_destroy(&topology);
    return TT_OK;
}

static json_t *architecture_json(const tt_arch *a)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "architecture",
        a->name, "attention", a->attention == TT_ATTENTION_MLA ? "latent" : "grouped-query",
        "layers", (json_int_t)a->L, "hidden", (json_int_t)a->H, "vocabulary", (json_int_t)a->V,
        "context", (json_int_t)a->context, "heads", (json_int_t)a->Nq, "experts", (json_int_t)a->E,
        "experts_per_token", (json_int_t)a->K, "expert_width", (json_int_t)a->F, "shared_width",
        (json_int_t)a->F_shared, "dense_width", (json_int_t)a->F_dense, "mtp_layers",
        (json_int_t)a->n_mtp);
    if (json && a->attention == TT_ATTENTION_MLA) {
        json_object_set_new(json, "kv_rank", json_integer((json_int_t)a->kv_rank));
    } else if (json) {
        json_object_set_new(json, "kv_heads", json_integer((json_int_t)a->Nkv));
        json_object_set_new(json, "head_width", json_integer((json_int_t)a->D));
    }
    return json;
}

static tt_status model_json(const tti_cli_options *options, const char *path, json_t **json_out)
{
    tt_model *model = NULL;
    TT_TRY(tti_cli_open_model(options, path, &model));
    const tt_arch *arch = tt_model_arch(model);
    tt_layout *layout = NULL;
    json_t *ranks = NULL;
    tt_status status = tti_cli_plan_layout(options, model, &layout);
    if (status == TT_OK) {
        char why[TT_STATUS_MESSAGE_BYTES];
        status = tti_cli_plan_settle(options, model, layout, why);
        status = status == TT_ERR_FIT ? TT_OK : status; /* a description, not a check */
    }
    if (status == TT_OK) {
        status = tti_cli_ranks_json(model, layout, &ranks);
    }
    if (status == TT_OK) {
        int64_t total = 0, active = 0;
        tt_model_count_parameters(model, &total, &active);
        json_t *json = architecture_json(arch);
        json_object_set_new(json, "path", json_string(tt_model_path(model)));
        json_object_set_new(json, "parameters", json_integer((json_int_t)total));
        json_object_set_new(json, "active_parameters", json_integer((json_int_t)active));
        json_object_set_new(json, "tensors", tti_cli_formats_json(model));
        json_object_set_new(json, "layout", tti_cli_layout_json(layout));
        json_object_set_new(json, "ranks", ranks);
        *json_out = json;
    }
    tt_layout_destroy(&layout);
    tt_model_close(&model);
    return status;
}

static const char *type_name(const tt_option *option)
{
    switch (option->type) {
    case TT_OPTION_FLAG:
    case TT_OPTION_SWITCH:
        return "flag";
    case TT_OPTION_INT:
        return "integer";
    case TT_OPTION_FLOAT:
        return "number";
    case TT_OPTION_BYTES:
        return "bytes";
    case TT_OPTION_STRING:
        return "text";
    case TT_OPTION_ENUM:
        return option->choices;
    case TT_OPTION_LIST:
        return "list";
    }
    return "";
}

static void env_name(const tt_option *option, char name[ENV_NAME_BYTES])
{
    snprintf(name, ENV_NAME_BYTES, "TUTTI_%s", option->name);
    for (char *at = name; *at; at++) {
        if (*at == '-') {
            *at = '_';
        } else if (*at >= 'a' && *at <= 'z') {
            *at = (char)(*at - 'a' + 'A');
        }
    }
}

static json_t *options_json(void)
{
    json_t *groups = json_object();
    for (int t = 0; groups && tti_cli_all_tables[t]; t++) {
        json_t *rows = json_array();
        bool has_flag = tti_cli_all_tables[t] != tti_cli_environment;
        for (const tt_option *o = tti_cli_all_tables[t]; o->name; o++) {
            char env[ENV_NAME_BYTES];
            env_name(o, env);
            json_t *row = json_pack("{s:s, s:s}", "type", type_name(o), "help", o->help);
            if (o->type != TT_OPTION_SWITCH) {
                json_object_set_new(row, "environment", json_string(env));
            }
            if (has_flag) {
                json_object_set_new(row, "option", json_sprintf("--%s", o->name));
            }
            if (o->default_value) {
                json_object_set_new(row, "default", json_string(o->default_value));
            }
            json_array_append_new(rows, row);
        }
        json_object_set_new(groups, tti_cli_all_headings[t], rows);
    }
    return groups;
}

/* ---- text ---- */

static const char *text_of(const json_t *json, const char *key)
{
    const char *text = json_string_value(json_object_get(json, key));
    return text ? text : "-";
}

static long long number_of(const json_t *json, const char *key)
{
    return (long long)json_integer_value(json_object_get(json, key));
}

static double mib_of(const json_t *json, const char *key)
{
    return (double)json_integer_value(json_object_get(json, key)) / TTI_CLI_MIB;
}

static void print_build(const json_t *b)
{
    printf("tutti      %s, %s build\n", text_of(b, "version"), text_of(b, "build"));
    printf("compiler   %s %s\n", text_of(b, "compiler"), text_of(b, "flags"));
    printf("kernels    set %s, instructions %s\n", text_of(b, "kernels"), text_of(b, "isa"));
    printf("MPI        %s\n", text_of(b, "mpi"));
}

static void print_machine(const json_t *m)
{
    printf("CPU        %s\n", text_of(m, "cpu"));
    printf("cores      %lld cores, %lld of %lld CPUs allowed, ", number_of(m, "cores"),
           number_of(m, "cpus_allowed"), number_of(m, "cpus_host"));
    double quota = json_number_value(json_object_get(m, "cpu_quota"));
    if (quota > 0) {
        printf("quota of %.2f CPUs\n", quota);
    } else {
        printf("no quota\n");
    }
    printf("memory     %lld NUMA node%s, %.0f MiB of %.0f MiB may be used, %.0f MiB available\n",
           number_of(m, "numa_nodes"), number_of(m, "numa_nodes") == 1 ? "" : "s",
           mib_of(m, "memory_limit_bytes"), mib_of(m, "memory_bytes"),
           mib_of(m, "memory_available_bytes"));
    printf("cache      %.1f MiB last-level\n", mib_of(m, "l3_bytes"));
}

static void print_model(json_t *m)
{
    printf("\nmodel      %s\n", text_of(m, "path"));
    printf("           %s, %s attention\n", text_of(m, "architecture"), text_of(m, "attention"));
    printf("sizes      %lld layers, hidden %lld, %lld heads, vocabulary %lld, context %lld\n",
           number_of(m, "layers"), number_of(m, "hidden"), number_of(m, "heads"),
           number_of(m, "vocabulary"), number_of(m, "context"));
    printf("experts    %lld of %lld per token, width %lld; shared width %lld, dense width %lld\n",
           number_of(m, "experts_per_token"), number_of(m, "experts"), number_of(m, "expert_width"),
           number_of(m, "shared_width"), number_of(m, "dense_width"));
    printf("parameters %.2f million, %.2f million active per token; %lld MTP layer%s\n",
           (double)number_of(m, "parameters") / 1e6,
           (double)number_of(m, "active_parameters") / 1e6, number_of(m, "mtp_layers"),
           number_of(m, "mtp_layers") == 1 ? "" : "s");
    const char *type;
    json_t *count;
    json_object_foreach(json_object_get(m, "tensors"), type, count)
    {
        printf("tensors    %lld of %s, %.2f million elements\n", number_of(count, "tensors"), type,
               (double)number_of(count, "elements") / 1e6);
    }
    const json_t *layout = json_object_get(m, "layout");
    printf(
        "layout     %lld rank%s on %lld node%s: dp %lld x tp %lld, ep %lld, etp %lld; batch %lld, context %lld\n",
        number_of(layout, "ranks"), number_of(layout, "ranks") == 1 ? "" : "s",
        number_of(layout, "nodes"), number_of(layout, "nodes") == 1 ? "" : "s",
        number_of(layout, "dp"), number_of(layout, "tp"), number_of(layout, "ep"),
        number_of(layout, "etp"), number_of(layout, "max_batch"), number_of(layout, "context"));
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(m, "ranks"), i, rank)
    {
        const json_t *r = json_object_get(rank, "memory");
        char borrowed[64];
        snprintf(borrowed, sizeof(borrowed), "; borrowed %.1f", mib_of(r, "borrowed_bytes"));
        printf("rank %-5lld %.1f MiB: dense %.1f, experts %.1f, KV %.1f (%lld bytes per token), "
               "exchange %.1f, work %.1f%s\n",
               number_of(rank, "rank"), mib_of(r, "total_bytes"), mib_of(r, "dense_bytes"),
               mib_of(r, "expert_bytes"), mib_of(r, "kv_bytes"),
               number_of(rank, "kv_bytes_per_token"), mib_of(r, "exchange_bytes"),
               mib_of(r, "work_bytes"), number_of(r, "borrowed_bytes") > 0 ? borrowed : "");
    }
}

static void print_options(json_t *groups)
{
    for (int t = 0; tti_cli_all_tables[t]; t++) {
        printf("\noptions: %s\n", tti_cli_all_headings[t]);
        size_t i;
        json_t *row;
        json_array_foreach(json_object_get(groups, tti_cli_all_headings[t]), i, row)
        {
            const char *option = json_string_value(json_object_get(row, "option"));
            const char *given = json_string_value(json_object_get(row, "default"));
            printf("  %-16s %-24s %-28s %s%s%s%s\n", option ? option : "",
                   text_of(row, "environment"), text_of(row, "type"), text_of(row, "help"),
                   given ? " (default " : "", given ? given : "", given ? ")" : "");
        }
    }
}

static tt_status info(const tti_cli_options *options, const char *path)
{
    json_t *machine = NULL, *model = NULL;
    if (path || options->layers > 0) {
        TT_TRY(tti_cli_check_source(options, path != NULL, "info", ""));
    }
    TT_TRY(machine_json(&machine));
    if (path || options->shape) {
        tt_status status = model_json(options, path, &model);
        if (status != TT_OK) {
            json_decref(machine);
            return status;
        }
    }
    json_t *all = json_object();
    json_object_update_new(all, build_json());
    json_object_set_new(all, "machine", machine);
    if (model) {
        json_object_set_new(all, "model", model);
    }
    if (options->list_options) {
        json_object_set_new(all, "options", options_json());
    }
    if (options->json) {
        json_dumpf(all, stdout, JSON_COMPACT);
        fputc('\n', stdout);
    } else {
        print_build(all);
        print_machine(machine);
        if (model) {
            print_model(model);
        }
        if (options->list_options) {
            print_options(json_object_get(all, "options"));
        }
    }
    json_decref(all);
    return tti_cli_flush_stdout();
}

int tti_cli_info(const tti_cli_call *call)
{
    tt_status status = info(call->options, call->n_words > 0 ? call->word[0] : NULL);
    return status == TT_OK ? 0 : tti_cli_fail_alone(status);
}
