/* safetensors.c - the header of one weight file, checked before anything relies on it.
 *
 * The file: a little-endian u64 N, N bytes of JSON (name -> dtype, shape, data_offsets), then data.
 * A header is believed only if every range has the size that its shape and type ask for, and the
 * ranges in order tile the data area exactly: so nothing overlaps, nothing is missing, and no later
 * sum can leave the file. Source: the safetensors format description of Hugging Face. */
#include "panels.h"
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "weight files are little-endian, and rows are handed out as they lie in the file"
#endif

enum {
    LENGTH_BYTES = 8,             /* of N */
    MAX_HEADER_BYTES = 100000000, /* as the format's own reader */
    POINTER_BYTES = 32            /* enough to know a Git LFS pointer */
};

static const tti_dtype_info dtypes[] = {{"F32", 32, true, TTK_F32, NULL},
                                        {"BF16", 16, true, TTK_BF16, NULL},
                                        {"F16", 16, true, TTK_F16, NULL},
                                        {"F64", 64, false, TTK_F32, NULL},
                                        {"F8_E4M3", 8, true, TTK_E4M3, NULL},
                                        {"F8_E5M2", 8, false, TTK_F32, NULL},
                                        {"F8_E4M3FNUZ", 8, false, TTK_F32, NULL},
                                        {"F8_E5M2FNUZ", 8, false, TTK_F32, NULL},
                                        {"F8_E8M0", 8, true, TTK_E8M0, NULL},
                                        {"F6_E2M3", 6, false, TTK_F32, NULL},
                                        {"F6_E3M2", 6, false, TTK_F32, NULL},
                                        {"F4", 4, false, TTK_F32, NULL},
                                        {"I64", 64, false, TTK_F32, NULL},
                                        {"U64", 64, false, TTK_F32, NULL},
                                        {"I32", 32, false, TTK_F32, NULL},
                                        {"U32", 32, false, TTK_F32, NULL},
                                        {"I16", 16, false, TTK_F32, NULL},
                                        {"U16", 16, false, TTK_F32, NULL},
                                        {"I8", 8, true, TTK_I8, NULL},
                                        {"U8", 8, true, TTK_U8, NULL},
                                        {"BOOL", 8, false, TTK_F32, NULL},
                                        {"C64", 64, false, TTK_F32, NULL}};

static const tti_dtype_info *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        if (strcmp(dtypes[i].name, name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

/* Product of the dimensions; false if one is no size or the product leaves 64 bits, a zero among
 * them or not: so whoever multiplies some of them later cannot overflow. */
static bool shape_elements(const json_t *shape, tti_entry *entry, uint64_t *elements_out)
{
    size_t i;
    json_t *value;
    uint64_t elements = 1;
    bool zero = false;
    entry->n_dims = (int)json_array_size(shape);
    json_array_foreach(shape, i, value)
    {
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            return false;
        }
        uint64_t dim = (uint64_t)json_integer_value(value);
        if (i < TTI_MAX_DIMS) {
            entry->dim[i] = (int64_t)dim;
        }
        zero = zero || dim == 0;
        if (dim > 0 && elements > INT64_MAX / dim) {
            return false;
        }
        elements *= dim > 0 ? dim : 1;
    }
    *elements_out = zero ? 0 : elements;
    return true;
}

/* One member of the header into entry; offset is still relative to the data area of data_bytes. */
static tt_status read_entry(const char *path, const char *name, const json_t *value,
                            uint64_t data_bytes, tti_entry *entry)
{
    path = tti_show_path(path);
    TT_CHECK(json_is_object(value), TT_ERR_FILE, "%s: entry of tensor '%s' is not an object", path,
             tti_show(name).text);
    const json_t *dtype = json_object_get(value, "dtype");
    const json_t *shape = json_object_get(value, "shape");
    const json_t *offsets = json_object_get(value, "data_offsets");
    TT_CHECK(json_is_string(dtype) && json_is_array(shape) && json_is_array(offsets), TT_ERR_FILE,
             "%s: tensor '%s' lacks a dtype, shape or data_offsets", path, tti_show(name).text);
    entry->name = name;
    entry->dtype = find_dtype(json_string_value(dtype));
    TT_CHECK(entry->dtype, TT_ERR_FILE, "%s: tensor '%s' has the unknown dtype '%s'", path,
             tti_show(name).text, tti_show(json_string_value(dtype)).text);

    uint64_t elements = 0;
    TT_CHECK(shape_elements(shape, entry, &elements) && elements <= UINT64_MAX / entry->dtype->bits,
             TT_ERR_FILE,
             "%s: tensor '%s' has a shape that is negative, not a number, or beyond 64 bits (file "
             "has %llu bytes of data)",
             path, tti_show(name).text, (unsigned long long)data_bytes);
    uint64_t bits = elements * entry->dtype->bits;
    TT_CHECK(bits % 8 == 0, TT_ERR_FILE, "%s: tensor '%s' does not end at a byte", path,
             tti_show(name).text);

    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    TT_CHECK(json_array_size(offsets) == 2 && json_is_integer(begin) && json_is_integer(end) &&
                 json_integer_value(begin) >= 0 &&
                 json_integer_value(end) >= json_integer_value(begin),
             TT_ERR_FILE, "%s: tensor '%s' has bad data_offsets", path, tti_show(name).text);
    entry->offset = (uint64_t)json_integer_value(begin);
    entry->bytes = (uint64_t)json_integer_value(end) - entry->offset;
    TT_CHECK(entry->bytes == bits / 8, TT_ERR_FILE,
             "%s: tensor '%s' needs %llu bytes by its shape and type, its data_offsets span %llu",
             path, tti_show(name).text, (unsigned long long)(bits / 8),
             (unsigned long long)entry->bytes);
    TT_CHECK(
        entry->offset + entry->bytes <= data_bytes, TT_ERR_FILE,
        "%s: is cut short or damaged: tensor '%s' ends at byte %llu of the data, the file has %llu",
        path, tti_show(name).text, (unsigned long long)(entry->offset + entry->bytes),
        (unsigned long long)data_bytes);
    return TT_OK;
}

static int by_offset(const void *a, const void *b)
{
    const tti_entry *x = *(const tti_entry *const *)a, *y = *(const tti_entry *const *)b;
    uint64_t x_end = x->offset + x->bytes, y_end = y->offset + y->bytes;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    return (x_end > y_end) - (x_end < y_end);
}

/* entry[n] in the order of offsets. */
static tt_status check_tiling(const char *path, const tti_entry *const *entry, size_t n,
                              uint64_t data_bytes)
{
    uint64_t end = 0;
    path = tti_show_path(path);
    for (size_t i = 0; i < n; i++) {
        TT_CHECK(entry[i]->offset >= end, TT_ERR_FILE, "%s: tensors '%s' and '%s' overlap", path,
                 tti_show(entry[i - 1]->name).text, tti_show(entry[i]->name).text);
        TT_CHECK(entry[i]->offset == end, TT_ERR_FILE,
                 "%s: %llu bytes before tensor '%s' belong to no tensor", path,
                 (unsigned long long)(entry[i]->offset - end), tti_show(entry[i]->name).text);
        end = entry[i]->offset + entry[i]->bytes;
    }
    TT_CHECK(end == data_bytes, TT_ERR_FILE, "%s: the last %llu bytes belong to no tensor", path,
             (unsigned long long)(data_bytes - end));
    return TT_OK;
}

static tt_status sort_and_check(const tti_file *file, const tti_table *table, uint64_t data_bytes)
{
    const tti_entry **order = malloc((table->n + 1) * sizeof(*order));
    TT_CHECK(order, TT_ERR_NOMEM, "%s: no memory to sort its %zu tensors",
             tti_show_path(file->path), table->n);
    for (size_t i = 0; i < table->n; i++) {
        order[i] = &table->entry[i];
    }
    qsort(order, table->n, sizeof(*order), by_offset);
    tt_status st = check_tiling(file->path, order, table->n, data_bytes);
    free(order);
    return st;
}

/* Reads and bounds N and the header's text. Owner: *text_out is the caller's. */
static tt_status read_text(const tti_file *file, char **text_out, size_t *n_out)
{
    const char *path = tti_show_path(file->path);
    unsigned char start[POINTER_BYTES];
    size_t n_start = file->bytes < sizeof(start) ? (size_t)file->bytes : sizeof(start);
    TT_TRY(tti_file_read(file, 0, start, n_start));
    TT_CHECK(
        !tti_file_is_pointer((const char *)start, n_start), TT_ERR_FILE,
        "%s: is an unfetched large-file pointer (Git LFS), not the weights; run `git lfs pull`",
        path);
    TT_CHECK(n_start >= LENGTH_BYTES, TT_ERR_FILE,
             "%s: has %llu bytes, too few for a safetensors file", path,
             (unsigned long long)file->bytes);
    uint64_t n = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) {
        n = n << 8 | start[i];
    }
    TT_CHECK(n <= MAX_HEADER_BYTES, TT_ERR_FILE,
             "%s: states a header of %llu bytes, above the limit of %d bytes", path,
             (unsigned long long)n, MAX_HEADER_BYTES);
    TT_CHECK(n <= file->bytes - LENGTH_BYTES, TT_ERR_FILE,
             "%s: is cut short: its header needs %llu bytes, the file has %llu", path,
             (unsigned long long)(n + LENGTH_BYTES), (unsigned long long)file->bytes);
    char *text = malloc((size_t)n + 1);
    TT_CHECK(text, TT_ERR_NOMEM, "%s: no memory for its header of %llu bytes", path,
             (unsigned long long)n);
    tt_status st = tti_file_read(file, LENGTH_BYTES, text, (size_t)n);
    if (st == TT_OK && (n == 0 || text[0] != '{')) {
        st = TT_FAIL(TT_ERR_FILE, "%s: its header is not a JSON object", path);
    }
    if (st != TT_OK) {
        free(text);
        return st;
    }
    *text_out = text;
    *n_out = (size_t)n;
    return TT_OK;
}

/* Where the member that begins at text[at] ends: at the comma or the brace that closes the header;
 * n if there is none. */
static size_t member_end(const char *text, size_t at, size_t n)
{
    size_t depth = 0;
    bool in_string = false;
    for (; at < n; at++) {
        switch (text[at]) {
        case '\\':
            at += in_string;
            break;
        case '"':
            in_string = !in_string;
            break;
        case '{':
        case '[':
            depth += !in_string;
            break;
        case '}':
        case ']':
            if (!in_string && depth-- == 0) {
                return at;
            }
            break;
        case ',':
            if (!in_string && depth == 0) {
                return at;
            }
            break;
        default:
            break;
        }
    }
    return n;
}

/* Keeps what the metadata say of packed panels, if they do. */
static tt_status keep_panels(const tti_file *file, const json_t *metadata, tti_table *table)
{
    const json_t *value = json_object_get(metadata, TTI_PANELS_KEY);
    if (!json_is_string(value) || table->panels) {
        return TT_OK;
    }
    size_t n = json_string_length(value) + 1;
    table->panels = malloc(n);
    TT_CHECK(table->panels, TT_ERR_NOMEM, "%s: no memory for its metadata",
             tti_show_path(file->path));
    memcpy(table->panels, json_string_value(value), n);
    return TT_OK;
}

/* Enters a parsed member, an object of one tensor. */
static tt_status add_member(const tti_file *file, int file_id, const json_t *member,
                            uint64_t data_bytes, tti_table *table)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)member, name, value)
    {
        tti_entry entry = {.file_id = file_id, .found = true};
        if (strcmp(name, "__metadata__") == 0) {
            TT_TRY(keep_panels(file, value, table));
            continue;
        }
        TT_CHECK(!tti_table_find(table, name), TT_ERR_FILE, "%s: tensor '%s' has a duplicate entry",
                 tti_show_path(file->path), tti_show(name).text);
        TT_TRY(read_entry(file->path, name, value, data_bytes, &entry));
        TT_TRY(tti_table_add(table, &entry));
    }
    return TT_OK;
}

/* The header, an object, is given to the JSON parser one member at a time, each in braces of its
 * own: a hundred thousand tensors never stand in memory as a tree, at many times the size of their
 * text. What joins the members are the commas and the braces found here; anything else between them
 * makes a member that the parser refuses. */
static tt_status read_members(const tti_file *file, int file_id, char *text, size_t n,
                              uint64_t data_bytes, tti_table *table)
{
    const char *path = tti_show_path(file->path);
    size_t begin = 0, end = 0; /* of a member: text[begin] opens it, text[end] closes it */
    for (bool more = true; more; begin = end) {
        end = member_end(text, begin + 1, n);
        TT_CHECK(end < n && text[end] != ']', TT_ERR_FILE,
                 "%s: bad JSON: its header is not closed, or closed wrongly, at byte %zu", path,
                 end);
        more = text[end] == ',';
        text[begin] = '{';
        text[end] = '}';
        json_error_t error;
        json_t *member = json_loadb(text + begin, end - begin + 1, JSON_REJECT_DUPLICATES, &error);
        TT_CHECK(member || json_error_code(&error) != json_error_out_of_memory, TT_ERR_NOMEM,
                 "%s: no memory to read its header", path);
        TT_CHECK(member, TT_ERR_FILE, "%s: bad JSON at byte %zu of its header: %s", path,
                 begin + (size_t)error.position, tti_show(error.text).text);
        bool empty = json_object_size(member) == 0;
        tt_status st = add_member(file, file_id, member, data_bytes, table);
        json_decref(member);
        TT_TRY(st);
        /* Only "{}" may hold no member. */
        TT_CHECK(!empty || (begin == 0 && !more), TT_ERR_FILE,
                 "%s: bad JSON at byte %zu of its header: a comma without a member", path, end);
    }
    for (size_t i = end + 1; i < n; i++) {
        TT_CHECK(strchr(" \t\r\n", text[i]) && text[i] != 0, TT_ERR_FILE,
                 "%s: bad JSON: text after the end of its header's object, at byte %zu", path, i);
    }
    return TT_OK;
}

tt_status tti_safetensors_read(const tti_file *file, int file_id, tti_table *table_out)
{
    char *text = NULL;
    size_t n_text = 0;
    tti_table table = {0};
    TT_TRY(read_text(file, &text, &n_text));
    uint64_t data_begin = LENGTH_BYTES + (uint64_t)n_text;
    uint64_t data_bytes = file->bytes - data_begin;
    tt_status st = read_members(file, file_id, text, n_text, data_bytes, &table);
    free(text);
    if (st == TT_OK) {
        st = sort_and_check(file, &table, data_bytes);
    }
    if (st != TT_OK) {
        tti_table_fini(&table);
        return st;
    }
    for (size_t i = 0; i < table.n; i++) {
        table.entry[i].offset += data_begin;
    }
    *table_out = table;
    return TT_OK;
}
