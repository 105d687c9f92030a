/* model_fixture.c - see model_fixture.h. Files are written by hand here, not by the code under
 * test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "model_fixture.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 2048, MEMBER_BYTES = 512, LENGTH_BYTES = 8 };

void fixture_begin(fixture *f)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(f->dir, sizeof(f->dir), "%s/tutti-model-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->dir));
}

void fixture_end(fixture *f)
{
    DIR *dir = opendir(f->dir);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            const char *path = fixture_path(f, entry->d_name);
            if (unlink(path) != 0) {
                rmdir(path);
            }
        }
    }
    closedir(dir);
    assert_int_equal(rmdir(f->dir), 0);
}

int fixture_set_up(void **state)
{
    static fixture f;
    fixture_begin(&f);
    *state = &f;
    return 0;
}

int fixture_set_up_tiny(void **state)
{
    fixture_set_up(state);
    tiny_write(*state);
    return 0;
}

int fixture_tear_down(void **state)
{
    fixture_end(*state);
    return 0;
}

const char *fixture_path(const fixture *f, const char *name)
{
    static char path[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    return path;
}

void fixture_write(const fixture *f, const char *name, const void *bytes, size_t n)
{
    FILE *out = fopen(fixture_path(f, name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
}

void fixture_write_text(const fixture *f, const char *name, const char *text)
{
    fixture_write(f, name, text, strlen(text));
}

void fixture_write_json(const fixture *f, const char *name, const json_t *json)
{
    fixture_remove(f, name);
    assert_int_equal(json_dump_file(json, fixture_path(f, name), 0), 0);
}

void fixture_remove(const fixture *f, const char *name)
{
    unlink(fixture_path(f, name));
}

void fixture_link(const fixture *f, const char *name, const char *source)
{
    assert_int_equal(symlink(source_path(source), fixture_path(f, name)), 0);
}

const char *source_path(const char *name)
{
    static char path[PATH_BYTES];
    const char *top = getenv("top_srcdir");
    snprintf(path, sizeof(path), "%s/%s", top ? top : ".", name);
    return path;
}

unsigned char *read_whole(const char *path, size_t *n_out)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    long n = ftell(in);
    assert_true(n >= 0);
    rewind(in);
    unsigned char *bytes = malloc((size_t)n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)n, in), (size_t)n);
    fclose(in);
    *n_out = (size_t)n;
    return bytes;
}

json_t *read_json(const char *path)
{
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

static void *grow(void *old, size_t *capacity, size_t need)
{
    if (need <= *capacity) {
        return old;
    }
    *capacity = 2 * need;
    void *fresh = realloc(old, *capacity);
    assert_non_null(fresh);
    return fresh;
}

void maker_add_bytes(maker *m, const char *name, const char *dtype, int n_dims, const int64_t *dim,
                     const void *bytes, size_t n)
{
    char shape[MEMBER_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < n_dims; i++) {
        used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%lld", i ? "," : "",
                                 (long long)dim[i]);
    }
    m->header = grow(m->header, &m->header_capacity, m->n_header + MEMBER_BYTES + used);
    m->data = grow(m->data, &m->data_capacity, m->n_data + n + 1);
    m->n_header +=
        (size_t)snprintf(m->header + m->n_header, MEMBER_BYTES + used,
                         "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                         m->n_header ? "," : "", name, dtype, shape, m->n_data, m->n_data + n);
    memcpy(m->data + m->n_data, bytes, n);
    m->n_data += n;
}

static size_t dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        size_t bytes;
    } known[] = {{"F64", 8}, {"F32", 4},     {"BF16", 2},    {"F16", 2}, {"I64", 8},
                 {"I32", 4}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, dtype) == 0) {
            return known[i].bytes;
        }
    }
    fail_msg("the fixture knows no dtype %s", dtype);
    return 0;
}

void maker_add(maker *m, const char *name, const char *dtype, int n_dims, const int64_t *dim,
               int fill)
{
    size_t n = dtype_bytes(dtype);
    for (int i = 0; i < n_dims; i++) {
        n *= (size_t)dim[i];
    }
    unsigned char *bytes = malloc(n + 1);
    assert_non_null(bytes);
    memset(bytes, fill, n);
    maker_add_bytes(m, name, dtype, n_dims, dim, bytes, n);
    free(bytes);
}

static void write_parts(const fixture *f, const char *name, const char *open, const char *header,
                        size_t n_header, const unsigned char *data, size_t n_data)
{
    unsigned char length[LENGTH_BYTES];
    uint64_t n = strlen(open) * 2 + n_header;
    for (int i = 0; i < LENGTH_BYTES; i++) {
        length[i] = (unsigned char)(n >> (8 * i));
    }
    FILE *out = fopen(fixture_path(f, name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(length, 1, sizeof(length), out), sizeof(length));
    fputs(open, out);
    assert_int_equal(fwrite(header, 1, n_header, out), n_header);
    fputs(open[0] ? "}" : "", out);
    assert_int_equal(fwrite(data, 1, n_data, out), n_data);
    assert_int_equal(fclose(out), 0);
}

void maker_save(const maker *m, const fixture *f, const char *name)
{
    write_parts(f, name, "{", m->header ? m->header : "", m->n_header,
                m->data ? m->data : (const unsigned char *)"", m->n_data);
}

void maker_fini(maker *m)
{
    free(m->header);
    free(m->data);
    memset(m, 0, sizeof(*m));
}

void write_safetensors(const fixture *f, const char *name, const char *header, size_t n_data)
{
    unsigned char *data = calloc(n_data + 1, 1);
    assert_non_null(data);
    write_parts(f, name, "", header, strlen(header), data, n_data);
    free(data);
}

json_t *tiny_config(void)
{
    json_t *config =
        json_pack("{s:[s],s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:b,s:f,s:i}",
                  "architectures", "Qwen3MoeForCausalLM", "model_type", "qwen3_moe",
                  "num_hidden_layers", TINY_L, "hidden_size", TINY_H, "vocab_size", TINY_V,
                  "num_attention_heads", TINY_HEADS, "num_key_value_heads", TINY_HEADS, "head_dim",
                  TINY_D, "intermediate_size", 5, "moe_intermediate_size", TINY_F, "num_experts",
                  TINY_E, "num_experts_per_tok", 2, "max_position_embeddings", 64, "norm_topk_prob",
                  1, "rope_theta", 10000.0, "eos_token_id", 2);
    assert_non_null(config);
    return config;
}

void tiny_add(maker *m, int layer)
{
    char name[MEMBER_BYTES];
    const int64_t vocabulary[] = {TINY_V, TINY_H}, norm[] = {TINY_H};
    const int64_t q[] = {TINY_HEADS * TINY_D, TINY_H}, o[] = {TINY_H, TINY_HEADS * TINY_D};
    const int64_t head_norm[] = {TINY_D}, router[] = {TINY_E, TINY_H};
    const int64_t up[] = {TINY_F, TINY_H}, down[] = {TINY_H, TINY_F};
    if (layer < 0) {
        maker_add(m, "model.embed_tokens.weight", "BF16", 2, vocabulary, 1);
        maker_add(m, "model.norm.weight", "BF16", 1, norm, 2);
        maker_add(m, "lm_head.weight", "BF16", 2, vocabulary, 3);
        return;
    }
    const struct {
        const char *name;
        int n_dims;
        const int64_t *dim;
    } parts[] = {{"input_layernorm.weight", 1, norm},
                 {"post_attention_layernorm.weight", 1, norm},
                 {"self_attn.q_proj.weight", 2, q},
                 {"self_attn.k_proj.weight", 2, q},
                 {"self_attn.v_proj.weight", 2, q},
                 {"self_attn.o_proj.weight", 2, o},
                 {"self_attn.q_norm.weight", 1, head_norm},
                 {"self_attn.k_norm.weight", 1, head_norm},
                 {"mlp.gate.weight", 2, router}};
    int fill = 10 + 40 * layer;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        snprintf(name, sizeof(name), "model.layers.%d.%s", layer, parts[i].name);
        maker_add(m, name, "BF16", parts[i].n_dims, parts[i].dim, fill++);
    }
    for (int e = 0; e < TINY_E; e++) {
        static const char *const experts[] = {"gate_proj", "up_proj", "down_proj"};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof(name), "model.layers.%d.mlp.experts.%d.%s.weight", layer, e,
                     experts[i]);
            maker_add(m, name, "BF16", 2, i == 2 ? down : up, fill++);
        }
    }
}

void tiny_write(const fixture *f)
{
    maker m = {0};
    json_t *config = tiny_config();
    fixture_write_json(f, "config.json", config);
    json_decref(config);
    for (int layer = -1; layer < TINY_L; layer++) {
        tiny_add(&m, layer);
    }
    maker_save(&m, f, "model.safetensors");
    maker_fini(&m);
}

void change_config(const fixture *f, const char *key, const char *text)
{
    json_t *config = read_json(fixture_path(f, "config.json"));
    if (text) {
        json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
        assert_non_null(value);
        json_object_set_new(config, key, value);
    } else {
        json_object_del(config, key);
    }
    fixture_write_json(f, "config.json", config);
    json_decref(config);
}

void arrange_miniature(const fixture *f, const char *folder, const char *config, const char *key,
                       const char *text)
{
    char source[PATH_BYTES];
    fixture_remove(f, "config.json");
    fixture_remove(f, "model.safetensors");
    snprintf(source, sizeof(source), MINIATURES "%s/%s", folder, config);
    fixture_link(f, "config.json", source);
    snprintf(source, sizeof(source), MINIATURES "%s/model.safetensors", folder);
    fixture_link(f, "model.safetensors", source);
    if (key) {
        change_config(f, key, text);
    }
}

void change_miniature(const fixture *f, const char *folder, const char *key, const char *text)
{
    arrange_miniature(f, folder, "config.json", key, text);
}

tt_model *open_miniature(const fixture *f, const char *folder, const char *config, const char *key,
                         const char *text)
{
    tt_model *model = NULL;
    arrange_miniature(f, folder, config, key, text);
    if (tt_model_open(f->dir, &model) != TT_OK) {
        fail_msg("%s, %s, %s = %s: %s", folder, config, key ? key : "", text ? text : "",
                 tt_status_message());
    }
    return model;
}

void expect_refusal(const fixture *f, tt_status status, ...)
{
    tt_model *model = NULL;
    tt_status st = tt_model_open(f->dir, &model);
    assert_null(model);
    if (st != status) {
        fail_msg("%s instead of %s: %s", tt_status_name(st), tt_status_name(status),
                 tt_status_message());
    }
    const char *message = tt_status_message();
    assert_null(strchr(message, '\n'));
    va_list args;
    va_start(args, status);
    for (const char *text = va_arg(args, const char *); text; text = va_arg(args, const char *)) {
        if (!strstr(message, text)) {
            fail_msg("'%s' is not in: %s", text, message);
        }
    }
    va_end(args);
}
