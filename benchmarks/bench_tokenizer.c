/* bench_tokenizer.c - times loading a tokenizer and encoding a text, on one thread.
 *
 *     bench_tokenizer MODEL TEXT-FILE
 *
 * One JSON line for the load; then, for each line on stdin, the text is encoded once and a JSON
 * line tells the time, on the clock and of this thread, and the ids (their number and CRC-32, to
 * be held against another library's). So a partner can take turns with it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tutti/tokenizer.h"
#include "tutti/trace.h"

enum { LINE_BYTES = 64, CHUNK_BYTES = 1 << 20 };

static void must(tt_status status)
{
    if (status != TT_OK) {
        fprintf(stderr, "bench_tokenizer: %s\n", tt_status_message());
        exit(tt_status_exit_code(status));
    }
}

static void read_file(const char *path, tt_text *text)
{
    FILE *file = fopen(path, "rb");
    char *chunk = malloc(CHUNK_BYTES);
    if (!file || !chunk) {
        fprintf(stderr, "bench_tokenizer: %s cannot be read\n", path);
        exit(1);
    }
    size_t n;
    while ((n = fread(chunk, 1, CHUNK_BYTES, file)) > 0) {
        must(tt_text_append(text, chunk, n));
    }
    fclose(file);
    free(chunk);
}

/* CRC-32 (IEEE 802.3, as zlib's) of the ids as 4 little-endian bytes each. */
static uint32_t crc_ids(const tt_ids *ids)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < ids->n; i++) {
        for (unsigned shift = 0; shift < 32; shift += 8) {
            crc ^= (uint32_t)ids->id[i] >> shift & 0xff;
            for (unsigned bit = 0; bit < 8; bit++) {
                crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
            }
        }
    }
    return ~crc;
}

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr,
                "usage: bench_tokenizer MODEL TEXT-FILE, then a line per repeat on stdin\n");
        return 2;
    }
    tt_text text = {0};
    tt_tokenizer *tokenizer = NULL;
    read_file(argv[2], &text);
    uint64_t begin_ns = tt_now_ns(), begin_cpu_ns = thread_ns();
    must(tt_tokenizer_create(argv[1], &tokenizer));
    uint64_t cpu_ns = thread_ns() - begin_cpu_ns, ns = tt_now_ns() - begin_ns;
    printf("{\"record\":\"load\",\"ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64 "}\n", ns, cpu_ns);
    fflush(stdout);
    char line[LINE_BYTES];
    while (fgets(line, sizeof(line), stdin)) {
        tt_ids ids = {0};
        begin_ns = tt_now_ns();
        begin_cpu_ns = thread_ns();
        must(tt_tokenizer_encode(tokenizer, text.bytes ? text.bytes : "", text.n, TT_ENCODE_PLAIN,
                                 &ids));
        cpu_ns = thread_ns() - begin_cpu_ns;
        ns = tt_now_ns() - begin_ns;
        printf("{\"record\":\"encode\",\"ns\":%" PRIu64 ",\"cpu_ns\":%" PRIu64
               ",\"bytes\":%zu,\"ids\":%zu,\"crc\":%" PRIu32 "}\n",
               ns, cpu_ns, text.n, ids.n, crc_ids(&ids));
        fflush(stdout);
        tt_ids_fini(&ids);
    }
    tt_tokenizer_destroy(&tokenizer);
    tt_text_fini(&text);
    return 0;
}
