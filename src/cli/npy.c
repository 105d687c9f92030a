/* npy.c - a header of text padded to 64 bytes, then the rows. */
#include "config.h"
#include "npy.h"
#include <errno.h>
#include <string.h>

enum {
    MAGIC_BYTES = 10, /* "\x93NUMPY", version 1.0, u16 length of the text */
    ALIGN = 64,       /* the data starts at a multiple, so that it may be mapped */
    TEXT_BYTES = 246  /* room for the text: MAGIC_BYTES + TEXT_BYTES is a multiple of ALIGN */
};

tt_status tti_cli_npy_create(const char *path, int64_t rows, int64_t cols, tti_cli_npy *npy)
{
    unsigned char header[MAGIC_BYTES + TEXT_BYTES] = "\x93NUMPY\x01";
    char text[TEXT_BYTES];
    int n = snprintf(text, sizeof(text),
                     "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
                     (long long)rows, (long long)cols);
    TT_CHECK(n > 0 && n < TEXT_BYTES - 1, TT_ERR_ARG, "%s: the shape is too long", path);
    size_t total = ((size_t)(MAGIC_BYTES + n + 1) + ALIGN - 1) / ALIGN * ALIGN;
    size_t text_bytes = total - MAGIC_BYTES;
    header[7] = 0; /* minor version */
    header[8] = (unsigned char)(text_bytes & 0xff);
    header[9] = (unsigned char)(text_bytes >> 8);
    memset(header + MAGIC_BYTES, ' ', text_bytes);
    memcpy(header + MAGIC_BYTES, text, (size_t)n);
    header[total - 1] = '\n';

    FILE *file = fopen(path, "wb");
    TT_CHECK(file, TT_ERR_USAGE, "%s cannot be written: %s", path, strerror(errno));
    if (fwrite(header, 1, total, file) != total) {
        fclose(file);
        return TT_FAIL(TT_ERR_IO, "%s cannot be written: %s", path, strerror(errno));
    }
    *npy = (tti_cli_npy){
        .file = file, .path = path, .rows = rows, .cols = cols, .data_offset = (int64_t)total};
    return TT_OK;
}

tt_status tti_cli_npy_put_row(tti_cli_npy *npy, int64_t row, const float *data)
{
    TT_CHECK(row >= 0 && row < npy->rows, TT_ERR_ARG, "%s has no row %lld", npy->path,
             (long long)row);
    int64_t row_bytes = npy->cols * (int64_t)sizeof(float);
    off_t offset = (off_t)(npy->data_offset + row * row_bytes);
    TT_CHECK(ftello(npy->file) == offset || fseeko(npy->file, offset, SEEK_SET) == 0, TT_ERR_IO,
             "%s: %s", npy->path, strerror(errno));
    uint16_t probe = 1;
    unsigned char low;
    memcpy(&low, &probe, 1);
    TT_CHECK(low == 1, TT_ERR_UNSUPPORTED, "logits are written on little-endian machines only");
    TT_CHECK(fwrite(data, sizeof(float), (size_t)npy->cols, npy->file) == (size_t)npy->cols,
             TT_ERR_IO, "%s cannot be written: %s", npy->path, strerror(errno));
    return TT_OK;
}

tt_status tti_cli_npy_close(tti_cli_npy *npy)
{
    if (!npy->file) {
        return TT_OK;
    }
    bool bad = ferror(npy->file) != 0;
    bad = fclose(npy->file) != 0 || bad;
    npy->file = NULL;
    TT_CHECK(!bad, TT_ERR_IO, "%s cannot be written: %s", npy->path, strerror(errno));
    return TT_OK;
}
