/* source.c - reads rows of a matrix from wherever its numbers lie, in the order of the matrix or in
 * another that a view describes.
 *
 * It goes in two steps. Fetching reads, for each part of the matrix (codes, scales, zero points),
 * the rectangle of the file that covers the wanted rows: whole lines in one read, or a span of each
 * line where that is much less. It also makes sure that the numbers can be: no scale is infinite.
 * Unpacking then takes any of the fetched rows apart, from memory alone; it cannot fail, so that
 * many threads may share the work. */
#include "source.h"
#include <stdlib.h>
#include <string.h>
#include "made.h"
#include "tutti/hash.h"

enum {
    SMALL_BYTES = 1 << 20, /* a rectangle within so few bytes is read with what lies around it */
    SPAN_PART = 4          /* and so is one that takes at least this part of its lines */
};

int64_t tti_source_row(const tti_source *source, int64_t r, int64_t *left_out)
{
    const tti_segment *segment = source->segment;
    while (r >= segment->rows && segment < source->segment + source->n_segments - 1) {
        r -= segment->rows;
        segment++;
    }
    if (left_out) {
        *left_out =
            segment->stride == segment->run ? segment->rows - r : segment->run - r % segment->run;
    }
    return segment->first + r / segment->run * segment->stride + r % segment->run;
}

/* ---- geometry ---- */

/* A part as it is read: a plain one gets its shape from the view. */
static tti_part part_of(const tti_source *s, int part)
{
    tti_part p = s->part[part];
    if (s->scheme == TTI_SCHEME_PLAIN) {
        p.lines = s->file_rows;
        p.words = s->file_cols;
        p.transposed = s->transposed;
    } else if (s->scheme == TTI_SCHEME_BLOCKS) {
        p.lines = s->file_rows;
        p.words = s->file_cols / s->block->elements;
    }
    return p;
}

static int64_t plane_rows(const tti_source *s)
{
    return s->scheme == TTI_SCHEME_QUANT ? s->plane_rows
           : s->transposed               ? s->file_cols
                                         : s->file_rows;
}

/* The plane that holds the matrix, and the output of it that is output 0 of the view's plane. */
static int64_t plane_of(const tti_source *s, int64_t *first_out)
{
    int64_t rows = s->transposed ? s->file_cols : s->file_rows, at = s->plane * rows;
    *first_out = at % plane_rows(s);
    return at / plane_rows(s);
}

static int64_t elements_of_word(const tti_part *p)
{
    return p->word_bytes * 8 / p->bits;
}

/* Rows of the plane's outputs that one step of a part's index stands for. */
static int64_t rows_per_step(const tti_source *s, int part, const tti_part *p)
{
    if (s->scheme == TTI_SCHEME_PANELS) {
        return TTK_PANEL;
    }
    int64_t shared = part == TTI_PART_SCALE || part == TTI_PART_ZERO ? s->scale_rows : 1;
    return (shared > 0 ? shared : 1) *
           (p->packing == TTI_PACKING_OUTPUTS ? elements_of_word(p) : 1);
}

/* The outputs [*begin_out, *end_out) of the plane that cover rows [row, row + n) of the matrix. Of
 * a view in turns (gate and up row by row) that is what lies between, too, and whoever wants the
 * other half reads the same span again: from memory, as it follows at once. An MXFP4 layer of 32
 * experts of 2880 x 2880, nothing cached: 768 MiB read, 500 MiB of them from the disk, which is the
 * file; the rest is 1 % of the time of loading. */
static void cover(const tti_source *s, int64_t row, int64_t n, int64_t *begin_out, int64_t *end_out)
{
    int64_t begin = INT64_MAX, end = 0, first;
    (void)plane_of(s, &first);
    for (int64_t done = 0; done < n;) {
        int64_t left, at = tti_source_row(s, row + done, &left);
        left = left < n - done ? left : n - done;
        begin = at < begin ? at : begin;
        end = at + left > end ? at + left : end;
        done += left;
    }
    *begin_out = first + (n > 0 ? begin : 0);
    *end_out = first + end;
}

/* What is read of a part: lines [line, line + n_lines), of each words [word, word + n_words); at:
 * where in the raw bytes. */
typedef struct rectangle {
    tti_part part;
    int64_t line, n_lines, word, n_words;
    size_t at, line_bytes;
} rectangle;

static void set_rectangle(const tti_source *s, int part, int64_t begin, int64_t end, rectangle *r)
{
    r->part = part_of(s, part);
    const tti_part *p = &r->part;
    r->n_lines = p->lines;
    r->n_words = p->words;
    r->line = r->word = 0;
    if (part != TTI_PART_GROUPS && part != TTI_PART_SHAPE) {
        int64_t step = rows_per_step(s, part, p), first = begin / step,
                last = end > begin ? (end - 1) / step + 1 : first;
        if (p->transposed) {
            size_t span = (size_t)(last - first) * (size_t)SPAN_PART,
                   whole = (size_t)p->lines * (size_t)p->words * p->word_bytes;
            if (span < (size_t)p->words && whole > SMALL_BYTES) {
                r->word = first;
                r->n_words = last - first;
            }
        } else {
            r->line = first;
            r->n_lines = last - first;
        }
    }
    r->line_bytes = (size_t)r->n_words * p->word_bytes;
}

/* All rectangles of rows [row, row + n); returns the bytes that they take. */
static size_t set_rectangles(const tti_source *s, int64_t row, int64_t n, rectangle rect[TTI_PARTS])
{
    int64_t begin, end;
    size_t at = 0;
    cover(s, row, n, &begin, &end);
    for (int i = 0; i < TTI_PARTS; i++) {
        rect[i] = (rectangle){.at = at};
        if (s->part[i].bytes > 0 && n > 0) {
            set_rectangle(s, i, begin, end, &rect[i]);
            rect[i].at = at;
            /* parts begin at such a border */
            at += tti_round_to_line((size_t)rect[i].n_lines * rect[i].line_bytes);
        }
    }
    return at;
}

/* ---- fetching ---- */

static tt_status read_at(const tt_model *model, const tti_source *s, const tti_part *p, uint64_t at,
                         size_t n, void *dst)
{
    TT_CHECK(at <= p->bytes && n <= p->bytes - at, TT_ERR_FILE,
             "%s: tensor '%s' ends before what is asked of it",
             tti_show_path(model->file[p->file_id].path), tti_show(s->name).text);
    tt_status st = tti_file_read(&model->file[p->file_id], p->offset + at, dst, n);
    /* The file knows what went wrong, only we know whose bytes they were. */
    return st == TT_OK
               ? TT_OK
               : TT_FAIL(st, "%s (tensor '%s')", tt_status_message(), tti_show(s->name).text);
}

/* Where a rectangle begins in its part; returns how many ranges of the file it is. */
static uint64_t lines_at(const tti_source *s, int part, const rectangle *r, uint64_t *at_out)
{
    int64_t first;
    uint64_t width = (uint64_t)r->part.words * r->part.word_bytes;
    uint64_t plane = part == TTI_PART_GROUPS || part == TTI_PART_SHAPE
                         ? 0
                         : (uint64_t)plane_of(s, &first) * (uint64_t)r->part.lines * width;
    *at_out = plane + (uint64_t)r->line * width + (uint64_t)r->word * r->part.word_bytes;
    return r->line_bytes == width ? 1 : (uint64_t)r->n_lines;
}

static tt_status read_rectangle(const tt_model *model, const tti_source *s, int part,
                                const rectangle *r, unsigned char *raw)
{
    uint64_t at, width = (uint64_t)r->part.words * r->part.word_bytes;
    if (lines_at(s, part, r, &at) == 1) {
        return read_at(model, s, &r->part, at, (size_t)r->n_lines * r->line_bytes, raw + r->at);
    }
    for (int64_t i = 0; i < r->n_lines; i++) {
        TT_TRY(read_at(model, s, &r->part, at + (uint64_t)i * width, r->line_bytes,
                       raw + r->at + (size_t)i * r->line_bytes));
    }
    return TT_OK;
}

static uint32_t load_word(const unsigned char *bytes, int n)
{
    uint32_t word = 0;
    for (int i = 0; i < n; i++) {
        word |= (uint32_t)bytes[i] << (8 * i);
    }
    return word;
}

static tt_status refuse_scales(const tt_model *model, const tti_source *s, const tti_part *p,
                               int64_t n)
{
    return n == 0
               ? TT_OK
               : TT_FAIL(
                     TT_ERR_FILE,
                     "%s: %lld scales of tensor '%s' are infinite or no number: the file is damaged",
                     tti_show_path(model->file[p->file_id].path), (long long)n,
                     tti_show(s->name).text);
}

static tt_status check_scales(const tt_model *model, const tti_source *s, const rectangle *r,
                              const unsigned char *raw)
{
    int64_t n = r->n_lines * r->n_words, n_bad = 0;
    for (int64_t i = 0; i < n; i++) {
        n_bad += !ttk_is_finite(s->stored.scale, raw + r->at + (size_t)i * r->part.word_bytes);
    }
    return refuse_scales(model, s, &r->part, n_bad);
}

static tt_status check_blocks(const tt_model *model, const tti_source *s, const rectangle *r,
                              const unsigned char *raw)
{
    int64_t n = r->n_lines * r->n_words, n_bad = 0;
    const unsigned char *block = raw + r->at;
    for (int64_t i = 0; i < n; i++, block += s->block->bytes) {
        for (int h = 0; h < s->block->n_halves; h++) {
            n_bad += !ttk_is_finite(TTK_F16, block + s->block->half[h]);
        }
        n_bad += s->format.scale == TTK_E8M0 && !ttk_is_finite(TTK_E8M0, block);
    }
    return refuse_scales(model, s, &r->part, n_bad);
}

/* Of panels as they lie in a packed checkpoint. */
static tt_status check_panels(const tt_model *model, const tt_tensor *tensor, const rectangle *r,
                              const unsigned char *raw)
{
    return ttk_format_is_plain(&tensor->format)
               ? TT_OK
               : refuse_scales(
                     model, tensor->source, &r->part,
                     ttk_count_bad_scales(&tensor->format, raw + r->at, r->n_lines, tensor->cols));
}

/* What a matrix without zero points says of its zero points: all of them are the middle. */
static tt_status check_even_zeros(const tt_model *model, const tti_source *s, const rectangle *r,
                                  const unsigned char *raw)
{
    uint32_t one = r->part.bits == 4 ? 0x11111111u : 0x01010101u,
             middle = (1u << (r->part.bits - 1)) - s->zero_add;
    for (int64_t i = 0; i < r->n_lines * r->n_words; i++) {
        TT_CHECK(
            load_word(raw + r->at + (size_t)i * 4, 4) == one * middle, TT_ERR_FILE,
            "%s: tensor '%s' has zero points of its own, but quantization_config says that it is symmetric",
            tti_show_path(model->file[r->part.file_id].path), tti_show(s->name).text);
    }
    return TT_OK;
}

static tt_status check_groups(const tt_model *model, const tti_source *s, const rectangle *r,
                              const unsigned char *raw)
{
    int64_t K = r->part.words, G = (K + s->stored.group - 1) / s->stored.group;
    bool in_order = !ttk_format_is_plain(&s->format);
    for (int64_t k = 0; k < K; k++) {
        int64_t g = load_word(raw + r->at + (size_t)k * 4, 4);
        TT_CHECK(g < G, TT_ERR_FILE,
                 "%s: input %lld of tensor '%s' is of group %lld, but there are %lld groups",
                 tti_show_path(model->file[r->part.file_id].path), (long long)k,
                 tti_show(s->name).text, (long long)g, (long long)G);
        TT_CHECK(
            !in_order || g == k / s->stored.group, TT_ERR_FILE,
            "%s: input %lld of tensor '%s' is of group %lld, but quantization_config says that groups follow each other",
            tti_show_path(model->file[r->part.file_id].path), (long long)k, tti_show(s->name).text,
            (long long)g);
    }
    return TT_OK;
}

static tt_status check_stated_shape(const tt_model *model, const tti_source *s, const rectangle *r,
                                    const unsigned char *raw)
{
    uint64_t dim[2];
    for (int i = 0; i < 2; i++) {
        const unsigned char *word = raw + r->at + (size_t)i * r->part.word_bytes;
        uint64_t high = r->part.word_bytes == 8 ? load_word(word + 4, 4) : 0;
        dim[i] = load_word(word, 4) | high << 32;
    }
    TT_CHECK(dim[0] == (uint64_t)s->plane_rows && dim[1] == (uint64_t)s->file_cols, TT_ERR_FILE,
             "%s: tensor '%s' states the shape [%llu, %llu], its codes are [%lld, %lld]",
             tti_show_path(model->file[r->part.file_id].path), tti_show(s->name).text,
             (unsigned long long)dim[0], (unsigned long long)dim[1], (long long)s->plane_rows,
             (long long)s->file_cols);
    return TT_OK;
}

static tt_status check_view(const tti_source *s)
{
    int64_t elements = s->scheme == TTI_SCHEME_BLOCKS ? s->block->elements : 1;
    TT_CHECK((s->scheme == TTI_SCHEME_PLAIN || !s->transposed) && s->file_cols % elements == 0,
             TT_ERR_UNSUPPORTED,
             "tensor '%s' is quantised along its outputs, which is not supported",
             tti_show(s->name).text);
    return TT_OK;
}

size_t tti_raw_bytes(const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    rectangle rect[TTI_PARTS];
    return set_rectangles(tensor->source, row, n_rows, rect);
}

uint64_t tti_raw_file_bytes(const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    rectangle rect[TTI_PARTS];
    uint64_t bytes = 0;
    (void)set_rectangles(tensor->source, row, n_rows, rect);
    for (int i = 0; i < TTI_PARTS; i++) {
        bytes += (uint64_t)rect[i].n_lines * rect[i].line_bytes;
    }
    return bytes;
}

void tti_raw_will_need(const tt_model *model, const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    const tti_source *s = tensor->source;
    rectangle rect[TTI_PARTS];
    (void)set_rectangles(s, row, n_rows, rect);
    for (int i = 0; i < TTI_PARTS && n_rows > 0; i++) {
        if (s->part[i].bytes > 0) {
            uint64_t at, lines = lines_at(s, i, &rect[i], &at);
            if (lines == 1) { /* one range; many small ones would cost more than they bring */
                tti_file_will_need(&model->file[s->part[i].file_id], s->part[i].offset + at,
                                   (size_t)rect[i].n_lines * rect[i].line_bytes);
            }
        }
    }
}

tt_status tti_raw_fetch(const tt_model *model, const tti_raw *raw)
{
    const tti_source *s = raw->tensor->source;
    rectangle rect[TTI_PARTS];
    TT_TRY(check_view(s));
    (void)set_rectangles(s, raw->row, raw->n_rows, rect);
    for (int i = 0; i < TTI_PARTS && raw->n_rows > 0; i++) {
        if (s->part[i].bytes > 0) {
            TT_TRY(read_rectangle(model, s, i, &rect[i], raw->bytes));
        }
    }
    if (raw->n_rows == 0 || s->scheme == TTI_SCHEME_PLAIN || s->scheme == TTI_SCHEME_MADE) {
        return TT_OK;
    }
    if (s->scheme == TTI_SCHEME_PANELS) {
        return check_panels(model, raw->tensor, &rect[TTI_PART_CODE], raw->bytes);
    }
    if (s->scheme == TTI_SCHEME_BLOCKS) {
        return check_blocks(model, s, &rect[TTI_PART_CODE], raw->bytes);
    }
    TT_TRY(check_scales(model, s, &rect[TTI_PART_SCALE], raw->bytes));
    if (s->zeros_even) {
        TT_TRY(check_even_zeros(model, s, &rect[TTI_PART_ZERO], raw->bytes));
    }
    if (s->part[TTI_PART_GROUPS].bytes > 0) {
        TT_TRY(check_groups(model, s, &rect[TTI_PART_GROUPS], raw->bytes));
    }
    return s->part[TTI_PART_SHAPE].bytes > 0
               ? check_stated_shape(model, s, &rect[TTI_PART_SHAPE], raw->bytes)
               : TT_OK;
}

/* ---- unpacking ---- */

/* Where a rectangle lies in memory, and how to find an element in it. */
typedef struct lines {
    const unsigned char *bytes;
    const rectangle *r;
    int64_t step; /* outputs that share an index */
} lines;

/* The bits of the element of output n (of the plane) and index k (an input, or a group). */
static uint32_t element(const lines *l, int64_t n, int64_t k)
{
    static const unsigned char awq[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const tti_part *p = &l->r->part;
    int64_t per = elements_of_word(p), i = n / l->step, sub = 0;
    if (p->packing == TTI_PACKING_OUTPUTS) {
        sub = n % per;
    } else if (p->packing == TTI_PACKING_INPUTS) {
        sub = k % per;
        k /= per;
    }
    int64_t line = (p->transposed ? k : i) - l->r->line,
            word = (p->transposed ? i : k) - l->r->word;
    uint32_t bits = load_word(
        l->bytes + (size_t)line * l->r->line_bytes + (size_t)word * p->word_bytes, p->word_bytes);
    return per == 1 ? bits : bits >> (p->bits * (p->awq ? awq[sub] : sub)) & ((1u << p->bits) - 1);
}

/* The codes of output n, a byte each; those of a line that lies straight go by bytes. */
static void unpack_codes(const tti_source *s, const lines *l, int64_t n, int64_t K,
                         unsigned char *code)
{
    const tti_part *p = &l->r->part;
    const unsigned char *line = l->bytes + (size_t)(n - l->r->line) * l->r->line_bytes;
    if (p->transposed) {
        int64_t per = p->packing == TTI_PACKING_INPUTS ? elements_of_word(p) : 1;
        uint32_t mask = (1u << p->bits) - 1;
        for (int64_t k = 0; k < K; k += per) {
            uint32_t word = element(l, n, k);
            if (per > 1) { /* one look-up for all inputs of a word */
                word = load_word(l->bytes + (size_t)(k / per - l->r->line) * l->r->line_bytes +
                                     (size_t)(n - l->r->word) * p->word_bytes,
                                 p->word_bytes);
            }
            for (int64_t i = 0; i < per; i++) {
                code[k + i] =
                    (unsigned char)((per > 1 ? word >> (p->bits * i) & mask : word) ^ s->flip);
            }
        }
    } else if (p->bits == 4) {
        for (int64_t k = 0; k < K; k += 2, line++) {
            code[k] = *line & 15;
            code[k + 1] = *line >> 4;
        }
    } else {
        for (int64_t k = 0; k < K; k++) {
            code[k] = line[k] ^ s->flip;
        }
    }
}

static void store(void *array, ttk_dtype type, int64_t i, uint32_t bits)
{
    switch (ttk_dtype_bytes(type)) {
    case 1:
        ((unsigned char *)array)[i] = (unsigned char)bits;
        break;
    case 2:
        ((uint16_t *)array)[i] = (uint16_t)bits;
        break;
    default:
        ((uint32_t *)array)[i] = bits;
        break;
    }
}

static unsigned char zero_point(const tti_source *s, const lines *l, int64_t n, int64_t g)
{
    uint32_t mask = (1u << l->r->part.bits) - 1;
    return (unsigned char)(((element(l, n, g) + s->zero_add) & mask) ^ s->flip);
}

/* Codes and scales to numbers, in place: the row's codes lie in the last quarter of dst[K]. */
static void to_numbers(const tti_source *s, const lines l[TTI_PARTS], int64_t n, int64_t K,
                       float *dst)
{
    const unsigned char *code = (const unsigned char *)dst + 3 * (size_t)K;
    const unsigned char *groups =
        s->part[TTI_PART_GROUPS].bytes > 0 ? l[TTI_PART_GROUPS].bytes : NULL;
    bool has_zeros = s->stored.shift == TTK_SHIFT_ZERO;
    for (int64_t k = 0; k < K; k++) {
        int64_t g = groups ? (int64_t)load_word(groups + (size_t)k * 4, 4) : k / s->stored.group;
        uint32_t bits[1];
        store(bits, s->stored.scale, 0, element(&l[TTI_PART_SCALE], n, g));
        float zero = has_zeros ? (float)zero_point(s, &l[TTI_PART_ZERO], n, g) : 0.0f;
        float value =
            ttk_number(s->stored.scale, bits, 0) * (ttk_number(s->stored.code, code, k) - zero);
        /* dst holds bytes still */
        memcpy((unsigned char *)dst + (size_t)k * sizeof(float), &value, sizeof(value));
    }
}

static void unpack_quant(const tti_source *s, const lines l[TTI_PARTS], int64_t n, int64_t i,
                         int64_t K, const ttk_unpacked *to)
{
    if (ttk_format_is_plain(&s->format)) {
        float *dst = (float *)to->code + i * K;
        unpack_codes(s, &l[TTI_PART_CODE], n, K, (unsigned char *)dst + 3 * (size_t)K);
        to_numbers(s, l, n, K, dst);
        return;
    }
    int64_t G = (K + s->stored.group - 1) / s->stored.group;
    unpack_codes(s, &l[TTI_PART_CODE], n, K, (unsigned char *)to->code + i * K);
    for (int64_t g = 0; g < G; g++) {
        store((void *)to->scale, s->stored.scale, i * G + g, element(&l[TTI_PART_SCALE], n, g));
        if (s->stored.shift == TTK_SHIFT_ZERO) {
            ((unsigned char *)to->shift)[i * G + g] = zero_point(s, &l[TTI_PART_ZERO], n, g);
        }
    }
}

static void unpack_blocks(const tti_source *s, const lines *l, int64_t n, int64_t i, int64_t K,
                          const ttk_unpacked *to)
{
    const ttk_format *f = &s->format;
    size_t G = (size_t)(K / f->group), S = f->super ? G / (size_t)f->super : 0, row = (size_t)i;
    size_t scale = ttk_dtype_bytes(f->scale);
    tti_block_arrays out = {
        .code = (unsigned char *)to->code + row * (size_t)K,
        .scale = (unsigned char *)to->scale + row * G * scale,
        .shift = to->shift ? (unsigned char *)to->shift + row * G * scale : NULL,
        .super_scale = to->super_scale ? (uint16_t *)to->super_scale + row * S : NULL,
        .super_shift = to->super_shift ? (uint16_t *)to->super_shift + row * S : NULL};
    s->block->unpack(l->bytes + (size_t)(n - l->r->line) * l->r->line_bytes, K / s->block->elements,
                     &out);
}

static void unpack_plain(const tti_source *s, const lines *l, int64_t n, int64_t i, int64_t K,
                         const ttk_unpacked *to)
{
    size_t bytes = ttk_dtype_bytes(s->format.code);
    unsigned char *dst = (unsigned char *)to->code + (size_t)(i * K) * bytes;
    if (!s->transposed) {
        memcpy(dst, l->bytes + (size_t)(n - l->r->line) * l->r->line_bytes, (size_t)K * bytes);
        return;
    }
    const unsigned char *from = l->bytes + (size_t)(n - l->r->word) * bytes;
    for (int64_t k = 0; k < K; k++, from += l->r->line_bytes) {
        memcpy(dst + (size_t)k * bytes, from, bytes);
    }
}

/* The arrays from row `row` on. */
static ttk_unpacked arrays_at(const ttk_format *f, const ttk_unpacked *all, int64_t K, int64_t row)
{
    ttk_unpacked at = {.code = (const unsigned char *)all->code +
                               (size_t)(row * K) * ttk_dtype_bytes(f->code)};
    if (ttk_format_is_plain(f)) {
        return at;
    }
    size_t groups = (size_t)row * (size_t)((K + f->group - 1) / f->group),
           scales = groups * ttk_dtype_bytes(f->scale);
    at.scale = (const unsigned char *)all->scale + scales;
    at.shift = all->shift ? (const unsigned char *)all->shift +
                                (f->shift == TTK_SHIFT_ZERO ? groups : scales)
                          : NULL;
    if (f->super > 0) {
        size_t supers =
            (size_t)row * (size_t)(((K + f->group - 1) / f->group + f->super - 1) / f->super);
        at.super_scale = (const uint16_t *)all->super_scale + supers;
        at.super_shift = all->super_shift ? (const uint16_t *)all->super_shift + supers : NULL;
    }
    return at;
}

const void *tti_raw_panel(const tti_raw *raw, int64_t begin, int64_t n)
{
    const tti_source *s = raw->tensor->source;
    int64_t row = raw->row + begin;
    bool whole = n == TTK_PANEL || row + n == raw->tensor->rows;
    if (s->scheme != TTI_SCHEME_PANELS || row % TTK_PANEL != 0 || !whole) {
        return NULL;
    }
    return raw->bytes +
           (size_t)(row / TTK_PANEL - raw->row / TTK_PANEL) * (size_t)s->part[TTI_PART_CODE].words;
}

void tti_raw_unpack(const tti_raw *raw, int64_t begin, int64_t n, const ttk_unpacked *to,
                    int64_t at)
{
    const tt_tensor *tensor = raw->tensor;
    const tti_source *s = tensor->source;
    rectangle rect[TTI_PARTS];
    lines l[TTI_PARTS];
    int64_t first;
    (void)plane_of(s, &first);
    (void)set_rectangles(s, raw->row, raw->n_rows, rect);
    for (int i = 0; i < TTI_PARTS; i++) {
        l[i] = (lines){raw->bytes + rect[i].at, &rect[i], 1};
        if (s->part[i].bytes > 0 && raw->n_rows > 0) {
            l[i].step = rows_per_step(s, i, &rect[i].part);
        }
    }
    if (s->scheme == TTI_SCHEME_MADE) {
        tti_made_rows(s, tensor->cols, raw->row + begin, n, to, at);
        return;
    }
    if (s->scheme == TTI_SCHEME_PANELS) {
        ttk_unpacked rows = arrays_at(&tensor->format, to, tensor->cols, at);
        ttk.unpack(&rows, &tensor->format, raw->bytes, tensor->cols, raw->row % TTK_PANEL + begin,
                   n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = first + tti_source_row(s, raw->row + begin + i, NULL);
        switch (s->scheme) {
        case TTI_SCHEME_PLAIN:
            unpack_plain(s, &l[TTI_PART_CODE], row, at + i, tensor->cols, to);
            break;
        case TTI_SCHEME_BLOCKS:
            unpack_blocks(s, &l[TTI_PART_CODE], row, at + i, tensor->cols, to);
            break;
        case TTI_SCHEME_QUANT:
            unpack_quant(s, l, row, at + i, tensor->cols, to);
            break;
        case TTI_SCHEME_PANELS:
        case TTI_SCHEME_MADE:
            break; /* above */
        }
    }
}

/* ---- what others call ---- */

/* The most bytes that a piece of `step` of these rows takes. */
static size_t most_bytes(const tt_tensor *tensor, int64_t row, int64_t n_rows, int64_t step)
{
    size_t most = 0;
    for (int64_t done = 0; done < n_rows; done += step) {
        size_t bytes =
            tti_raw_bytes(tensor, row + done, n_rows - done < step ? n_rows - done : step);
        most = bytes > most ? bytes : most;
    }
    return most;
}

int64_t tti_raw_rows(const tt_tensor *tensor, size_t bytes, int64_t row, int64_t n_rows,
                     int64_t unit, size_t *bytes_out)
{
    uint64_t row_bytes = tt_tensor_file_bytes(tensor, 1) + 1;
    int64_t step = (int64_t)(bytes / row_bytes) / unit * unit;
    step = step < unit ? unit : step;
    step = step < n_rows || n_rows == 0 ? step : n_rows;
    /* What lies around the rows may be read with them: fewer rows, then. */
    while ((*bytes_out = most_bytes(tensor, row, n_rows, step)) > bytes && step > unit) {
        step = (step / 2 + unit - 1) / unit * unit;
    }
    return step;
}

uint64_t tt_tensor_file_bytes(const tt_tensor *tensor, int64_t n_rows)
{
    const tti_source *s = tensor->source;
    uint64_t bytes = 0;
    for (int i = TTI_PART_CODE; i <= TTI_PART_ZERO; i++) {
        tti_part p = part_of(s, i);
        uint64_t plane = (uint64_t)p.lines * (uint64_t)p.words * p.word_bytes,
                 rows = (uint64_t)plane_rows(s);
        bytes += p.bytes == 0 || rows == 0
                     ? 0
                     : plane / rows * (uint64_t)n_rows + plane % rows * (uint64_t)n_rows / rows;
    }
    return bytes;
}

const char *tt_model_tensor_file(const tt_model *model, const tt_tensor *tensor)
{
    if (tensor->source->scheme == TTI_SCHEME_MADE) {
        return model->path;
    }
    /* a path is DIR/NAME */
    return strrchr(model->file[tensor->source->part[TTI_PART_CODE].file_id].path, '/') + 1;
}

static void hash_values(tt_hash_pair *hash, const uint64_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        tt_hash_pair_add(hash, values[i]);
    }
}

static void hash_format(tt_hash_pair *hash, const ttk_format *f)
{
    const uint64_t values[] = {(uint64_t)f->code, (uint64_t)f->scale, (uint64_t)f->shift,
                               (uint64_t)f->group, (uint64_t)f->super};
    hash_values(hash, values, sizeof(values) / sizeof(values[0]));
}

tt_hash_pair tti_tensor_hash_pair(const tt_tensor *tensor)
{
    const tti_source *s = tensor->source;
    const uint64_t values[] = {(uint64_t)tensor->rows,   (uint64_t)tensor->cols,
                               (uint64_t)s->scheme,      (uint64_t)s->plane,
                               (uint64_t)s->file_rows,   (uint64_t)s->file_cols,
                               (uint64_t)s->transposed,  (uint64_t)s->map,
                               (uint64_t)s->plane_rows,  (uint64_t)s->scale_rows,
                               (uint64_t)s->flip,        (uint64_t)s->zero_add,
                               (uint64_t)s->zeros_even,  s->block ? (uint64_t)s->block->id + 1 : 0,
                               (uint64_t)s->scale_first, s->made.key};
    tt_hash_pair hash = tt_hash_pair_begin();
    hash_values(&hash, values, sizeof(values) / sizeof(values[0]));
    hash_format(&hash, &s->format);
    hash_format(&hash, &s->stored);
    for (int i = 0; i < TTI_PARTS; i++) {
        const tti_part *p = &s->part[i];
        const uint64_t part[] = {(uint64_t)p->file_id,
                                 p->offset,
                                 p->bytes,
                                 (uint64_t)p->lines,
                                 (uint64_t)p->words,
                                 (uint64_t)p->word_bytes,
                                 (uint64_t)p->bits,
                                 (uint64_t)p->packing,
                                 (uint64_t)p->transposed,
                                 (uint64_t)p->awq};
        hash_values(&hash, part, sizeof(part) / sizeof(part[0]));
    }
    for (int i = 0; i < s->n_segments; i++) {
        const tti_segment *g = &s->segment[i];
        const uint64_t segment[] = {(uint64_t)g->rows, (uint64_t)g->first, (uint64_t)g->run,
                                    (uint64_t)g->stride};
        hash_values(&hash, segment, sizeof(segment) / sizeof(segment[0]));
    }
    return hash;
}

uint64_t tt_tensor_hash(const tt_tensor *tensor)
{
    return tti_tensor_hash_pair(tensor).first;
}

static tt_status check_range(const tt_tensor *tensor, int64_t row, int64_t n_rows)
{
    TT_CHECK(tensor->name && tensor->source, TT_ERR_ARG,
             "a tensor that is not in the checkpoint cannot be read");
    TT_CHECK(row >= 0 && n_rows >= 0 && row <= tensor->rows && n_rows <= tensor->rows - row,
             TT_ERR_ARG, "%lld rows from row %lld of tensor '%s' are outside its %lld rows",
             (long long)n_rows, (long long)row, tti_show(tensor->name).text,
             (long long)tensor->rows);
    return TT_OK;
}

/* True if the rows are elements that follow each other in the file: they need no unpacking. */
static bool is_straight(const tti_source *s, int64_t row, int64_t n_rows)
{
    int64_t left = 0;
    if (s->scheme != TTI_SCHEME_PLAIN || s->transposed || n_rows == 0) {
        return false;
    }
    (void)tti_source_row(s, row, &left);
    return left >= n_rows;
}

tt_status tt_model_read_rows(const tt_model *model, const tt_tensor *tensor, int64_t row,
                             int64_t n_rows, void *buffer, ttk_unpacked *rows_out)
{
    TT_TRY(check_range(tensor, row, n_rows));
    tti_raw raw = {.tensor = tensor, .row = row, .n_rows = n_rows, .bytes = buffer};
    if (is_straight(tensor->source, row, n_rows)) {
        TT_TRY(tti_raw_fetch(model, &raw));
        *rows_out = ttk_unpacked_in(&tensor->format, n_rows, tensor->cols, buffer);
        return TT_OK;
    }
    raw.bytes = malloc(tti_raw_bytes(tensor, row, n_rows) + 1);
    TT_CHECK(raw.bytes, TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(tensor->name).text);
    tt_status st = tti_raw_fetch(model, &raw);
    if (st == TT_OK) {
        *rows_out = ttk_unpacked_in(&tensor->format, n_rows, tensor->cols, buffer);
        tti_raw_unpack(&raw, 0, n_rows, rows_out, 0);
    }
    free(raw.bytes);
    return st;
}

tt_status tt_model_read_f32(const tt_model *model, const tt_tensor *tensor, int64_t row,
                            int64_t n_rows, float *dst)
{
    enum { PIECE_BYTES = 4 << 20 };
    TT_TRY(check_range(tensor, row, n_rows));
    size_t raw_bytes;
    int64_t piece = tti_raw_rows(tensor, PIECE_BYTES, row, n_rows, 1, &raw_bytes), K = tensor->cols;
    void *buffer = malloc(ttk_unpacked_bytes(&tensor->format, piece, K) + 1);
    TT_CHECK(buffer, TT_ERR_NOMEM, "no memory to read tensor '%s'", tti_show(tensor->name).text);
    tt_status st = TT_OK;
    for (int64_t done = 0; st == TT_OK && done < n_rows; done += piece) {
        int64_t n = piece < n_rows - done ? piece : n_rows - done;
        ttk_unpacked rows;
        st = tt_model_read_rows(model, tensor, row + done, n, buffer, &rows);
        if (st == TT_OK) {
            ttk_unpacked_to_f32(&tensor->format, &rows, n, K, dst + done * K);
            tti_map_apply(tensor->source->map, dst + done * K, n * K);
        }
    }
    free(buffer);
    return st;
}

void tti_map_apply(tti_map map, float *x, int64_t n)
{
    for (int64_t i = 0; map != TTI_MAP_NONE && i < n; i++) {
        x[i] = map == TTI_MAP_PLUS_ONE ? 1.0f + x[i] : map == TTI_MAP_EXP ? ttk_exp(x[i]) : -x[i];
    }
}
