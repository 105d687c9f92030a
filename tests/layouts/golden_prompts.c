/* golden_prompts.c - helps layouts.sh with JSON: prints the golden prompts as options, checks
 * generated ids against the golden ones, prints ids. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) {
        fprintf(stderr, "%s: %s\n", path, error.text);
    }
    return root;
}

static int print_prompts(const char *golden)
{
    json_t *root = load(golden), *prompt, *id;
    size_t i, j;
    if (!root) {
        return 1;
    }
    json_array_foreach(json_object_get(root, "prompts"), i, prompt)
    {
        json_array_foreach(json_object_get(prompt, "prompt_ids"), j, id)
        {
            printf("%s%d", j ? "," : "--ids ", (int)json_integer_value(id));
        }
        printf(" ");
    }
    json_decref(root);
    return 0;
}

static int print_ids(json_t *ids)
{
    json_t *id;
    size_t i;
    json_array_foreach(ids, i, id)
    {
        printf("%d ", (int)json_integer_value(id));
    }
    printf("\n");
    return json_array_size(ids) == 0;
}

/* The reference runs on past the end of a text; ours stops after it. */
static int same_up_to_end(json_t *want, json_t *got)
{
    enum { END = 1, END_OF_TURN = 4 };
    for (size_t i = 0; i < json_array_size(want); i++) {
        long long w = json_integer_value(json_array_get(want, i));
        if (i >= json_array_size(got) || json_integer_value(json_array_get(got, i)) != w) {
            return 0;
        }
        if (w == END || w == END_OF_TURN) {
            return json_array_size(got) == i + 1;
        }
    }
    return json_array_size(got) == json_array_size(want);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "prompts") == 0) {
        return print_prompts(argv[2]);
    }
    int checks = argc == 4 && strcmp(argv[1], "check") == 0;
    if (!checks && !(argc == 3 && strcmp(argv[1], "ids") == 0)) {
        return 2;
    }
    json_t *golden = checks ? load(argv[2]) : NULL;
    FILE *file = fopen(argv[argc - 1], "r");
    if (!file || (checks && !golden)) {
        return 1;
    }
    json_t *prompts = json_object_get(golden, "prompts");
    json_t *line;
    size_t n = 0;
    int bad = 0;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        json_t *ids = json_object_get(line, "ids");
        if (!checks) {
            bad |= print_ids(ids);
        } else if (!same_up_to_end(json_object_get(json_array_get(prompts, n), "greedy_ids"),
                                   ids)) {
            fprintf(stderr, "prompt %zu: tokens differ from the reference\n", n);
            bad = 1;
        }
        n++;
        json_decref(line);
    }
    fclose(file);
    if (n == 0 || (checks && n != json_array_size(prompts))) {
        fprintf(stderr, "%zu results\n", n);
        bad = 1;
    }
    json_decref(golden);
    return bad;
}
