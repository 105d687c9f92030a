/* bench_svg.c - tokens/s of decoding over the batch as a drawing of its own: a line for each depth,
 * the range of the samples at each point. Batches stand on a logarithmic axis, as they are mostly
 * powers of two. Plain SVG 1.1 without scripts or fonts of its own. */
#include "config.h"
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include "tutti/load.h"

enum {
    WIDTH = 760,
    HEIGHT = 480,
    LEFT = 84,
    RIGHT = 150, /* room for the legend */
    TOP = 64,
    BOTTOM = 64,
    INSET = 28, /* of the first and the last batch: their labels stay clear of the axis */
    MOST_TICKS = 8,
    TEXT_BYTES = 256
};
static const char *const colours[] = {"#0b62a4", "#c1440e", "#2a7f3f", "#7a3e9d",
                                      "#8a6d00", "#00798c", "#a8324a", "#555555"};
enum { N_COLOURS = sizeof(colours) / sizeof(colours[0]) };

typedef struct drawing {
    const tti_bench *bench;
    FILE *out;
    double least_batch, most_batch, most_speed; /* of the axes */
} drawing;

static double x_of(const drawing *d, double batch)
{
    double span = log2(d->most_batch / d->least_batch);
    return LEFT + INSET +
           (span > 0 ? log2(batch / d->least_batch) / span : 0.5) *
               (WIDTH - LEFT - RIGHT - 2 * INSET);
}

static double y_of(const drawing *d, double speed)
{
    return HEIGHT - BOTTOM - speed / d->most_speed * (HEIGHT - TOP - BOTTOM);
}

/* The largest of 1, 2, 5 times a power of ten that gives at most so many steps. */
static double nice_step(double most)
{
    double power = pow(10.0, floor(log10(most / MOST_TICKS)));
    static const double factor[] = {1, 2, 5, 10};
    for (int i = 0; i < 3; i++) {
        if (most / (factor[i] * power) <= MOST_TICKS) {
            return factor[i] * power;
        }
    }
    return factor[3] * power;
}

/* Names may hold what XML does not allow. */
static void put_text(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '<' || *c == '>' || *c == '&' || *c == '"') {
            fprintf(out, "&#%d;", *c);
        } else {
            fputc(*c < ' ' || *c > '~' ? '?' : *c, out);
        }
    }
}

static void draw_text(FILE *out, double x, double y, const char *more, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, more);
    put_text(out, text);
    fprintf(out, "</text>\n");
}

static void draw_line(FILE *out, const double from[2], const double to[2], const char *more)
{
    fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", from[0], from[1],
            to[0], to[1], more);
}

static void draw_axes(const drawing *d)
{
    char text[TEXT_BYTES];
    double step = nice_step(d->most_speed);
    for (int i = 0; i * step <= d->most_speed * 1.0001; i++) {
        double y = y_of(d, i * step);
        draw_line(d->out, (double[]){LEFT, y}, (double[]){WIDTH - RIGHT, y},
                  i ? "stroke=\"#ddd\"" : "stroke=\"#333\"");
        snprintf(text, sizeof(text), "%g", i * step);
        draw_text(d->out, LEFT - 8, y + 4, "text-anchor=\"end\"", text);
    }
    for (int i = 0; i < d->bench->batch.n; i++) {
        double x = x_of(d, (double)d->bench->batch.value[i]);
        draw_line(d->out, (double[]){x, HEIGHT - BOTTOM}, (double[]){x, HEIGHT - BOTTOM + 5},
                  "stroke=\"#333\"");
        snprintf(text, sizeof(text), "%lld", (long long)d->bench->batch.value[i]);
        draw_text(d->out, x, HEIGHT - BOTTOM + 20, "text-anchor=\"middle\"", text);
    }
    draw_line(d->out, (double[]){LEFT, TOP}, (double[]){LEFT, HEIGHT - BOTTOM}, "stroke=\"#333\"");
    draw_text(d->out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 18, "text-anchor=\"middle\"",
              "batch: sequences decoded at once");
    fprintf(
        d->out,
        "<text transform=\"translate(22 %.1f) rotate(-90)\" text-anchor=\"middle\">tokens/s, all sequences together</text>\n",
        (TOP + HEIGHT - BOTTOM) / 2.0);
}

static void draw_title(const drawing *d)
{
    const tti_bench *b = d->bench;
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%s: decoding", tt_model_path(b->session.model));
    draw_text(d->out, LEFT, 26, "font-size=\"16\" font-weight=\"bold\"", text);
    snprintf(
        text, sizeof(text),
        "%d rank%s of %d threads, dp %d x tp %d; weights %s, act %s; median of %lld samples, bars from least to most",
        b->launch->size, b->launch->size == 1 ? "" : "s", tt_stream_n_threads(b->session.compute),
        b->session.layout->dp, b->session.layout->tp,
        b->session.layout->weights == TT_WEIGHTS_AUTO ? "as stored"
                                                      : tt_weights_name(b->session.layout->weights),
        tt_act_name(b->session.layout->act), (long long)b->options.repeat);
    draw_text(d->out, LEFT, 46, "font-size=\"11\" fill=\"#555\"", text);
}

/* Points of one depth in the order of batches; what was not timed is left out. */
static void draw_depth(const drawing *d, int number, int64_t depth)
{
    const tti_bench *b = d->bench;
    const char *colour = colours[number % N_COLOURS];
    char more[TEXT_BYTES], text[TEXT_BYTES];
    fprintf(d->out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
    for (int i = 0; i < b->n_results; i++) {
        const tti_bench_result *r = &b->result[i];
        if (!r->what.is_prefill && r->what.depth == depth) {
            fprintf(d->out, "%.1f,%.1f ", x_of(d, (double)r->what.batch),
                    y_of(d, tti_bench_figure(b, r).tokens_per_s));
        }
    }
    fprintf(d->out, "\"/>\n");
    snprintf(more, sizeof(more), "stroke=\"%s\"", colour);
    for (int i = 0; i < b->n_results; i++) {
        const tti_bench_result *r = &b->result[i];
        if (r->what.is_prefill || r->what.depth != depth) {
            continue;
        }
        tti_bench_figures f = tti_bench_figure(b, r);
        double x = x_of(d, (double)r->what.batch), y = y_of(d, f.tokens_per_s);
        draw_line(d->out, (double[]){x, y_of(d, f.least)}, (double[]){x, y_of(d, f.most)}, more);
        fprintf(d->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", x, y, colour);
        snprintf(text, sizeof(text), "%.*f", f.tokens_per_s < 100 ? 1 : 0, f.tokens_per_s);
        char label[TEXT_BYTES];
        snprintf(label, sizeof(label), "text-anchor=\"middle\" font-size=\"10\" fill=\"%s\"",
                 colour);
        draw_text(d->out, x, y - 9, label, text);
    }
    double y = TOP + 18.0 * number + 8;
    draw_line(d->out, (double[]){WIDTH - RIGHT + 16, y}, (double[]){WIDTH - RIGHT + 38, y}, more);
    snprintf(text, sizeof(text), "depth %lld", (long long)depth);
    draw_text(d->out, WIDTH - RIGHT + 44, y + 4, "", text);
}

tt_status tti_bench_draw(const tti_bench *b, FILE *out)
{
    drawing d = {.bench = b, .out = out, .least_batch = HUGE_VAL};
    for (int i = 0; i < b->n_results; i++) {
        const tti_bench_result *r = &b->result[i];
        if (!r->what.is_prefill) {
            double most = tti_bench_figure(b, r).most, batch = (double)r->what.batch;
            d.most_speed = most > d.most_speed ? most : d.most_speed;
            d.least_batch = batch < d.least_batch ? batch : d.least_batch;
            d.most_batch = batch > d.most_batch ? batch : d.most_batch;
        }
    }
    TT_CHECK(d.most_speed > 0, TT_ERR_USAGE, "--svg draws decoding, but none was timed");
    d.most_speed *= 1.08; /* room above the highest label */
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    draw_title(&d);
    draw_axes(&d);
    for (int i = 0; i < b->depth.n; i++) {
        draw_depth(&d, i, b->depth.value[i]);
    }
    fprintf(out, "</svg>\n");
    TT_CHECK(fflush(out) == 0 && !ferror(out), TT_ERR_IO, "--svg %s cannot be written: %s",
             b->options.svg, strerror(errno));
    return TT_OK;
}
