/* gguf.c - parses a GGUF header.
 *
 * A cursor walks the buffer; every length is held against what is left of the buffer before it is
 * used, and every count against what is left of the file before it sizes anything. Tables grow as
 * entries are read, so memory follows the bytes that are there, not the counts that are claimed.
 * After the walk the tables are sorted: doubles become neighbours, look-ups are binary searches,
 * and tensors whose ranges overlap are found in one pass over their places. */
#include "gguf.h"
#include <stdlib.h>
#include <string.h>

enum {
    KEY_BYTES_MIN = 8 + 4 + 1,                /* name's length, type, smallest value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 8 + 4 + 8, /* name of a byte, one dimension, type, offset */
    NAME_BYTES_MAX = 1024,                    /* of a tensor (the format says 64) */
    ARRAY_DEPTH_MAX = 4,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MAX = 1 << 20,
    HEADER_BYTES_MAX = 256 << 20, /* real ones are below 20 MB */
    FIRST_READ_BYTES = 4 << 20,
    FIRST_ENTRIES = 64
};

/* Bytes of one element; 0: the type does not exist or its elements have no fixed size. */
static unsigned element_bytes(uint32_t type)
{
    static const unsigned char bytes[] = {
        [TTI_GGUF_U8] = 1,  [TTI_GGUF_I8] = 1,  [TTI_GGUF_U16] = 2, [TTI_GGUF_I16] = 2,
        [TTI_GGUF_U32] = 4, [TTI_GGUF_I32] = 4, [TTI_GGUF_F32] = 4, [TTI_GGUF_BOOL] = 1,
        [TTI_GGUF_U64] = 8, [TTI_GGUF_I64] = 8, [TTI_GGUF_F64] = 8};
    return type < sizeof(bytes) ? bytes[type] : 0;
}

static uint64_t load_le(const unsigned char *bytes, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

tti_shown tti_gguf_show(tti_gguf_string string)
{
    char text[TTI_SHOWN_BYTES];
    size_t n = string.n < sizeof(text) - 1 ? string.n : sizeof(text) - 1;
    n = string.bytes ? n : 0;
    for (size_t i = 0; i < n; i++) {
        text[i] = string.bytes[i] ? string.bytes[i] : '?';
    }
    text[n] = 0;
    return tti_show(text);
}

/* ---- the walk ---- */

/* Where the walk is. wants_more: it stopped at the end of the buffer, not at a fault. */
typedef struct cursor {
    const char *path;
    const unsigned char *bytes;
    size_t n, at;
    uint64_t file_bytes;
    bool wants_more;
} cursor;

/* n more bytes are in the buffer. If not, and the file has them, wants_more is set beside the
 * error. `what` and `name` say whose bytes they are. */
static tt_status need(cursor *c, uint64_t n, const char *what, tti_gguf_string name)
{
    if (n <= c->n - c->at) {
        return TT_OK;
    }
    if (n <= c->file_bytes - c->at) {
        c->wants_more = true;
        return TT_ERR_FILE;
    }
    return TT_FAIL(
        TT_ERR_FILE, "%s: is cut short: %s%s%s%s needs %llu bytes at byte %zu, the file has %llu",
        tti_show_path(c->path), what, name.n ? " '" : "", name.n ? tti_gguf_show(name).text : "",
        name.n ? "'" : "", (unsigned long long)n, c->at, (unsigned long long)c->file_bytes);
}

static tt_status take(cursor *c, unsigned n, const char *what, tti_gguf_string name,
                      uint64_t *value_out)
{
    /* Running out of the buffer is no fault to trace: the caller comes back. */
    tt_status st = need(c, n, what, name);
    if (st == TT_OK) {
        *value_out = load_le(c->bytes + c->at, n);
        c->at += n;
    }
    return st;
}

static tt_status take_string(cursor *c, const char *what, tti_gguf_string name,
                             tti_gguf_string *string_out)
{
    uint64_t n;
    tt_status st = take(c, 8, what, name, &n);
    if (st == TT_OK) {
        st = need(c, n, what, name);
    }
    if (st == TT_OK) {
        *string_out = (tti_gguf_string){(const char *)c->bytes + c->at, (size_t)n};
        c->at += (size_t)n;
    }
    return st;
}

static tt_status skip_array(cursor *c, tti_gguf_string name, int depth, uint64_t *type_out,
                            uint64_t *n_out, size_t *first_out);

/* Walks over n values of a type. */
static tt_status skip_values(cursor *c, tti_gguf_string name, uint64_t type, uint64_t n, int depth)
{
    unsigned bytes = type <= TTI_GGUF_F64 ? element_bytes((uint32_t)type) : 0;
    tt_status st = TT_OK;
    if (bytes > 0) {
        TT_CHECK(n <= c->file_bytes / bytes, TT_ERR_FILE,
                 "%s: key '%s' states %llu elements, the file has %llu bytes",
                 tti_show_path(c->path), tti_gguf_show(name).text, (unsigned long long)n,
                 (unsigned long long)c->file_bytes);
        st = need(c, n * bytes, "the value of key", name);
        for (uint64_t i = 0; st == TT_OK && type == TTI_GGUF_BOOL && i < n; i++) {
            TT_CHECK(c->bytes[c->at + i] <= 1, TT_ERR_FILE, "%s: key '%s' holds a bool of value %u",
                     tti_show_path(c->path), tti_gguf_show(name).text, c->bytes[c->at + i]);
        }
        c->at += st == TT_OK ? (size_t)(n * bytes) : 0;
        return st;
    }
    TT_CHECK(type == TTI_GGUF_STRING || type == TTI_GGUF_ARRAY, TT_ERR_FILE,
             "%s: key '%s' has the unknown type %llu", tti_show_path(c->path),
             tti_gguf_show(name).text, (unsigned long long)type);
    /* A string or an array has 8 bytes at least: a count that the file cannot hold is refused
     * before the loop. */
    TT_CHECK(n <= (c->file_bytes - c->at) / 8, TT_ERR_FILE,
             "%s: key '%s' states %llu elements, the file has %llu bytes", tti_show_path(c->path),
             tti_gguf_show(name).text, (unsigned long long)n, (unsigned long long)c->file_bytes);
    for (uint64_t i = 0; st == TT_OK && i < n; i++) {
        tti_gguf_string text;
        uint64_t inner, count;
        size_t first;
        st = type == TTI_GGUF_STRING ? take_string(c, "the value of key", name, &text)
                                     : skip_array(c, name, depth + 1, &inner, &count, &first);
    }
    return st;
}

/* Walks over an array; its elements begin at *first_out. */
static tt_status skip_array(cursor *c, tti_gguf_string name, int depth, uint64_t *type_out,
                            uint64_t *n_out, size_t *first_out)
{
    TT_CHECK(depth < ARRAY_DEPTH_MAX, TT_ERR_FILE, "%s: key '%s' holds arrays more than %d deep",
             tti_show_path(c->path), tti_gguf_show(name).text, (int)ARRAY_DEPTH_MAX);
    tt_status st = take(c, 4, "the value of key", name, type_out);
    if (st == TT_OK) {
        st = take(c, 8, "the value of key", name, n_out);
    }
    *first_out = c->at;
    return st == TT_OK ? skip_values(c, name, *type_out, *n_out, depth) : st;
}

static tt_status read_key(cursor *c, tti_gguf_key *key)
{
    static const tti_gguf_string none = {0};
    uint64_t type = 0;
    tt_status st = take_string(c, "the name of a key", none, &key->name);
    if (st == TT_OK) {
        st = take(c, 4, "the type of key", key->name, &type);
    }
    if (st != TT_OK) {
        return st;
    }
    TT_CHECK(key->name.n > 0, TT_ERR_FILE, "%s: a key without a name at byte %zu",
             tti_show_path(c->path), c->at);
    size_t first = c->at;
    key->n = 1;
    if (type == TTI_GGUF_ARRAY) {
        key->is_array = true;
        st = skip_array(c, key->name, 0, &type, &key->n, &first);
    } else {
        st = skip_values(c, key->name, type, 1, 0);
    }
    key->type = (tti_gguf_type)type;
    key->bytes = c->bytes + first;
    key->n_bytes = c->at - first;
    return st;
}

/* Room for one more entry of a table that doubles. */
static tt_status grow(const char *path, void **table, size_t n, size_t entry_bytes)
{
    if (n > 0 && (n < FIRST_ENTRIES || (n & (n - 1)) != 0)) {
        return TT_OK;
    }
    size_t capacity = n == 0 ? FIRST_ENTRIES : 2 * n;
    void *larger = realloc(*table, capacity * entry_bytes);
    TT_CHECK(larger, TT_ERR_NOMEM, "%s: no memory for its header", tti_show_path(path));
    *table = larger;
    return TT_OK;
}

static tt_status read_keys(cursor *c, uint64_t n, tti_gguf *gguf)
{
    TT_CHECK(n <= (c->file_bytes - c->at) / KEY_BYTES_MIN, TT_ERR_FILE,
             "%s: states %llu keys, the file has %llu bytes", tti_show_path(c->path),
             (unsigned long long)n, (unsigned long long)c->file_bytes);
    for (uint64_t i = 0; i < n; i++) {
        TT_TRY(grow(c->path, (void **)&gguf->key, gguf->n_keys, sizeof(*gguf->key)));
        tti_gguf_key *key = &gguf->key[gguf->n_keys];
        memset(key, 0, sizeof(*key));
        tt_status st = read_key(c, key);
        if (st != TT_OK) {
            return st;
        }
        gguf->n_keys++;
    }
    return TT_OK;
}

/* The shape of a tensor and the bytes of its data. With a dimension of 0 it is empty, which is no
 * fault where nothing needs it. */
static tt_status read_shape(cursor *c, tti_gguf_tensor *tensor)
{
    uint64_t n_dims = 0, dim = 0, type = 0, elements = 1, n_empty = 0;
    const char *path = tti_show_path(c->path);
    tt_status st = take(c, 4, "the shape of tensor", tensor->name, &n_dims);
    if (st != TT_OK) {
        return st;
    }
    TT_CHECK(n_dims >= 1 && n_dims <= TTI_GGUF_DIMS, TT_ERR_FILE,
             "%s: tensor '%s' has %llu dimensions (1 to %d are possible)", path,
             tti_gguf_show(tensor->name).text, (unsigned long long)n_dims, (int)TTI_GGUF_DIMS);
    tensor->n_dims = (int)n_dims;
    for (int i = 0; i < TTI_GGUF_DIMS; i++) {
        tensor->dim[i] = 1;
    }
    for (int i = 0; i < tensor->n_dims && st == TT_OK; i++) {
        st = take(c, 8, "the shape of tensor", tensor->name, &dim);
        /* No block holds more than 256 elements in a byte, so more elements than that cannot be
         * there. */
        TT_CHECK(st != TT_OK || dim <= INT64_MAX / elements / 512, TT_ERR_FILE,
                 "%s: tensor '%s' has the impossible dimension %llu", path,
                 tti_gguf_show(tensor->name).text, (unsigned long long)dim);
        if (st == TT_OK) {
            tensor->dim[i] = (int64_t)dim;
            elements *= dim > 0 ? dim : 1;
            n_empty += dim == 0;
        }
    }
    if (st == TT_OK) {
        st = take(c, 4, "the type of tensor", tensor->name, &type);
    }
    if (st != TT_OK) {
        return st;
    }
    tensor->type = tti_block_type_find((uint32_t)type);
    TT_CHECK(tensor->type, TT_ERR_UNSUPPORTED, "%s: tensor '%s' has the unknown type %llu", path,
             tti_gguf_show(tensor->name).text, (unsigned long long)type);
    TT_CHECK(
        tensor->dim[0] % tensor->type->elements == 0, TT_ERR_FILE,
        "%s: tensor '%s' has rows of %lld elements, which is no multiple of the %u of a block of %s",
        path, tti_gguf_show(tensor->name).text, (long long)tensor->dim[0],
        (unsigned)tensor->type->elements, tensor->type->dtype.name);
    tensor->bytes =
        n_empty > 0 ? 0
                    : elements / (unsigned)tensor->type->elements * (unsigned)tensor->type->bytes;
    return TT_OK;
}

static tt_status read_tensors(cursor *c, uint64_t n, tti_gguf *gguf)
{
    static const tti_gguf_string none = {0};
    TT_CHECK(n <= (c->file_bytes - c->at) / TENSOR_BYTES_MIN, TT_ERR_FILE,
             "%s: states %llu tensors, the file has %llu bytes", tti_show_path(c->path),
             (unsigned long long)n, (unsigned long long)c->file_bytes);
    for (uint64_t i = 0; i < n; i++) {
        TT_TRY(grow(c->path, (void **)&gguf->tensor, gguf->n_tensors, sizeof(*gguf->tensor)));
        tti_gguf_tensor *tensor = &gguf->tensor[gguf->n_tensors];
        memset(tensor, 0, sizeof(*tensor));
        tt_status st = take_string(c, "the name of a tensor", none, &tensor->name);
        if (st != TT_OK) {
            return st;
        }
        TT_CHECK(
            tensor->name.n > 0 && tensor->name.n <= NAME_BYTES_MAX &&
                !memchr(tensor->name.bytes, 0, tensor->name.n),
            TT_ERR_FILE,
            "%s: the name of tensor %llu ('%s', %zu bytes) is empty, too long or holds a zero byte",
            tti_show_path(c->path), (unsigned long long)i, tti_gguf_show(tensor->name).text,
            tensor->name.n);
        st = read_shape(c, tensor);
        if (st == TT_OK) {
            st = take(c, 8, "the place of tensor", tensor->name, &tensor->offset);
        }
        if (st != TT_OK) {
            return st;
        }
        gguf->n_tensors++;
    }
    return TT_OK;
}

/* ---- order ---- */

static int compare_names(tti_gguf_string a, tti_gguf_string b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.bytes, b.bytes, n) : 0;
    return order ? order : (a.n > b.n) - (a.n < b.n);
}

static int by_key(const void *a, const void *b)
{
    return compare_names(((const tti_gguf_key *)a)->name, ((const tti_gguf_key *)b)->name);
}

static int by_tensor(const void *a, const void *b)
{
    return compare_names(((const tti_gguf_tensor *)a)->name, ((const tti_gguf_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const tti_gguf_tensor *x = a, *y = b;
    if (x->offset != y->offset) {
        return x->offset > y->offset ? 1 : -1;
    }
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first: they overlap with
                                                           * none */
}

static tt_status sort_keys(tti_gguf *gguf)
{
    if (gguf->n_keys > 1) {
        qsort(gguf->key, gguf->n_keys, sizeof(*gguf->key), by_key);
    }
    for (size_t i = 1; i < gguf->n_keys; i++) {
        TT_CHECK(compare_names(gguf->key[i - 1].name, gguf->key[i].name) != 0, TT_ERR_FILE,
                 "%s: key '%s' is there twice", tti_show_path(gguf->path),
                 tti_gguf_show(gguf->key[i].name).text);
    }
    return TT_OK;
}

static tt_status find_alignment(tti_gguf *gguf)
{
    const tti_gguf_key *key = tti_gguf_find(gguf, "general.alignment");
    int64_t alignment = ALIGNMENT_DEFAULT;
    if (key) {
        TT_CHECK(tti_gguf_int(key, 0, &alignment) && !key->is_array && alignment >= 1 &&
                     alignment <= ALIGNMENT_MAX && (alignment & (alignment - 1)) == 0,
                 TT_ERR_FILE, "%s: key 'general.alignment' is not a power of two up to %d",
                 tti_show_path(gguf->path), (int)ALIGNMENT_MAX);
    }
    gguf->alignment = (uint64_t)alignment;
    return TT_OK;
}

/* Turns offsets into places in the file, checks that each is there and that no two overlap, and
 * sorts by name. */
static tt_status place_tensors(tti_gguf *gguf, uint64_t header_bytes, uint64_t file_bytes)
{
    const char *path = tti_show_path(gguf->path);
    gguf->data_offset = (header_bytes + gguf->alignment - 1) / gguf->alignment * gguf->alignment;
    for (size_t i = 0; i < gguf->n_tensors; i++) {
        tti_gguf_tensor *tensor = &gguf->tensor[i];
        TT_CHECK(tensor->offset % gguf->alignment == 0, TT_ERR_FILE,
                 "%s: tensor '%s' begins at byte %llu of the data, which is no multiple of %llu",
                 path, tti_gguf_show(tensor->name).text, (unsigned long long)tensor->offset,
                 (unsigned long long)gguf->alignment);
        TT_CHECK(
            gguf->data_offset <= file_bytes && tensor->offset <= file_bytes - gguf->data_offset &&
                tensor->bytes <= file_bytes - gguf->data_offset - tensor->offset,
            TT_ERR_FILE,
            "%s: is cut short: tensor '%s' (%s) takes %llu bytes at byte %llu of the data, the file has %llu bytes and its data begin at %llu",
            path, tti_gguf_show(tensor->name).text, tensor->type->dtype.name,
            (unsigned long long)tensor->bytes, (unsigned long long)tensor->offset,
            (unsigned long long)file_bytes, (unsigned long long)gguf->data_offset);
        tensor->offset += gguf->data_offset;
    }
    if (gguf->n_tensors > 1) {
        qsort(gguf->tensor, gguf->n_tensors, sizeof(*gguf->tensor), by_place);
    }
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        const tti_gguf_tensor *a = &gguf->tensor[i - 1], *b = &gguf->tensor[i];
        TT_CHECK(a->offset + a->bytes <= b->offset, TT_ERR_FILE,
                 "%s: tensors '%s' and '%s' overlap", path, tti_gguf_show(a->name).text,
                 tti_gguf_show(b->name).text);
    }
    if (gguf->n_tensors > 1) {
        qsort(gguf->tensor, gguf->n_tensors, sizeof(*gguf->tensor), by_tensor);
    }
    for (size_t i = 1; i < gguf->n_tensors; i++) {
        TT_CHECK(compare_names(gguf->tensor[i - 1].name, gguf->tensor[i].name) != 0, TT_ERR_FILE,
                 "%s: tensor '%s' is there twice", path, tti_gguf_show(gguf->tensor[i].name).text);
    }
    return TT_OK;
}

/* ---- the whole ---- */

static tt_status check_version(const cursor *c, uint64_t version)
{
    const char *path = tti_show_path(c->path);
    TT_CHECK((version & 0xffff) != 0, TT_ERR_UNSUPPORTED,
             "%s: is a big-endian GGUF file, which is not supported", path);
    TT_CHECK(version == 2 || version == 3, TT_ERR_UNSUPPORTED,
             "%s: GGUF version %llu is not supported (2 and 3 are)", path,
             (unsigned long long)version);
    return TT_OK;
}

static tt_status parse(cursor *c, tti_gguf *gguf)
{
    static const tti_gguf_string none = {0};
    uint64_t version = 0, n_tensors = 0, n_keys = 0;
    tt_status st = need(c, 8, "its magic", none);
    if (st != TT_OK) {
        return st;
    }
    TT_CHECK(!tti_file_is_pointer((const char *)c->bytes, c->n), TT_ERR_FILE,
             "%s: is an unfetched large-file pointer, not the file itself", tti_show_path(c->path));
    TT_CHECK(memcmp(c->bytes, "GGUF", 4) == 0, TT_ERR_FILE,
             "%s: is not a GGUF file (it does not begin with 'GGUF')", tti_show_path(c->path));
    c->at = 4;
    TT_TRY(take(c, 4, "its version", none, &version));
    TT_TRY(check_version(c, version));
    gguf->version = (uint32_t)version;
    st = take(c, 8, "its number of tensors", none, &n_tensors);
    if (st == TT_OK) {
        st = take(c, 8, "its number of keys", none, &n_keys);
    }
    if (st == TT_OK) {
        st = read_keys(c, n_keys, gguf);
    }
    if (st == TT_OK) {
        st = read_tensors(c, n_tensors, gguf);
    }
    if (st != TT_OK) {
        return st;
    }
    TT_TRY(sort_keys(gguf));
    TT_TRY(find_alignment(gguf));
    return place_tensors(gguf, c->at, c->file_bytes);
}

tt_status tti_gguf_parse(const char *path, const void *bytes, size_t n, uint64_t file_bytes,
                         tti_gguf *gguf_out, bool *short_out)
{
    TT_ASSERT(n <= file_bytes);
    cursor c = {.path = path, .bytes = bytes, .n = n, .file_bytes = file_bytes};
    tti_gguf gguf = {.path = path};
    tt_status st = parse(&c, &gguf);
    *short_out = c.wants_more;
    if (st != TT_OK) {
        tti_gguf_fini(&gguf);
        return c.wants_more ? TT_OK : st;
    }
    *gguf_out = gguf;
    return TT_OK;
}

void tti_gguf_fini(tti_gguf *gguf)
{
    free(gguf->key);
    free(gguf->tensor);
    memset(gguf, 0, sizeof(*gguf));
}

tt_status tti_gguf_read(const tti_file *file, tti_gguf_header *header_out)
{
    tti_gguf_header header = {0};
    bool is_short = true;
    /* Headers are small beside the data, but nobody says how small: read more until it is all
     * there. */
    for (uint64_t n = FIRST_READ_BYTES; is_short; n *= 4) {
        TT_CHECK(n <= HEADER_BYTES_MAX, TT_ERR_FILE,
                 "%s: its header is above the limit of %d bytes", tti_show_path(file->path),
                 (int)HEADER_BYTES_MAX);
        size_t take_bytes = (size_t)(n < file->bytes ? n : file->bytes);
        void *buffer = malloc(take_bytes + 1);
        TT_CHECK(buffer, TT_ERR_NOMEM, "%s: no memory for its header", tti_show_path(file->path));
        tt_status st = tti_file_read(file, 0, buffer, take_bytes);
        if (st == TT_OK) {
            st = tti_gguf_parse(file->path, buffer, take_bytes, file->bytes, &header.gguf,
                                &is_short);
        }
        if (st != TT_OK || is_short) {
            free(buffer);
            TT_TRY(st);
        } else {
            header.buffer = buffer;
        }
    }
    *header_out = header;
    return TT_OK;
}

void tti_gguf_header_fini(tti_gguf_header *header)
{
    tti_gguf_fini(&header->gguf);
    free(header->buffer);
    header->buffer = NULL;
}

/* ---- looking things up ---- */

const tti_gguf_key *tti_gguf_find(const tti_gguf *gguf, const char *name)
{
    const tti_gguf_key wanted = {.name = {name, strlen(name)}};
    return gguf->n_keys ? bsearch(&wanted, gguf->key, gguf->n_keys, sizeof(wanted), by_key) : NULL;
}

const tti_gguf_tensor *tti_gguf_find_tensor(const tti_gguf *gguf, const char *name)
{
    const tti_gguf_tensor wanted = {.name = {name, strlen(name)}};
    return gguf->n_tensors
               ? bsearch(&wanted, gguf->tensor, gguf->n_tensors, sizeof(wanted), by_tensor)
               : NULL;
}

bool tti_gguf_int(const tti_gguf_key *key, uint64_t i, int64_t *value_out)
{
    unsigned bytes = element_bytes(key->type);
    if (bytes == 0 || key->type == TTI_GGUF_BOOL || key->type == TTI_GGUF_F32 ||
        key->type == TTI_GGUF_F64) {
        return false;
    }
    uint64_t value = load_le(key->bytes + i * bytes, bytes);
    bool is_signed = key->type == TTI_GGUF_I8 || key->type == TTI_GGUF_I16 ||
                     key->type == TTI_GGUF_I32 || key->type == TTI_GGUF_I64;
    if (is_signed && bytes < 8 && value >> (8 * bytes - 1)) {
        *value_out = (int64_t)value - ((int64_t)1 << (8 * bytes));
        return true;
    }
    if (!is_signed && value > INT64_MAX) {
        return false;
    }
    memcpy(value_out, &value, sizeof(value));
    return true;
}

bool tti_gguf_real(const tti_gguf_key *key, uint64_t i, double *value_out)
{
    int64_t whole;
    if (key->type == TTI_GGUF_F32) {
        uint32_t bits = (uint32_t)load_le(key->bytes + i * sizeof(float), sizeof(float));
        float value;
        memcpy(&value, &bits, sizeof(value));
        *value_out = (double)value;
        return true;
    }
    if (key->type == TTI_GGUF_F64) {
        uint64_t bits = load_le(key->bytes + i * sizeof(double), sizeof(double));
        memcpy(value_out, &bits, sizeof(bits));
        return true;
    }
    if (!tti_gguf_int(key, i, &whole)) {
        return false;
    }
    *value_out = (double)whole;
    return true;
}

bool tti_gguf_text(const tti_gguf_key *key, tti_gguf_string *value_out)
{
    if (key->is_array || key->type != TTI_GGUF_STRING) {
        return false;
    }
    *value_out = (tti_gguf_string){(const char *)key->bytes + 8, (size_t)(key->n_bytes - 8)};
    return true;
}

bool tti_gguf_bool(const tti_gguf_key *key, bool *value_out)
{
    if (key->is_array || key->type != TTI_GGUF_BOOL) {
        return false;
    }
    *value_out = key->bytes[0] != 0;
    return true;
}

bool tti_gguf_texts(const tti_gguf_key *key, tti_gguf_string *strings)
{
    if (!key->is_array || key->type != TTI_GGUF_STRING) {
        return false;
    }
    const unsigned char *at = key->bytes;
    for (uint64_t i = 0; i < key->n; i++) {
        size_t n = (size_t)load_le(at, 8);
        strings[i] = (tti_gguf_string){(const char *)at + 8, n};
        at += 8 + n;
    }
    return true;
}
