/* gguf_generation.c - how the file's author samples: the keys general.sampling.*. */
#include "gguf_model.h"
#include <math.h>

tt_status tti_gguf_generation(const tti_gguf *gguf, tt_generation *generation_out)
{
    static const char *const names[] = {"general.sampling.temp", "general.sampling.top_p",
                                        "general.sampling.min_p", "general.sampling.top_k"};
    double value[] = {NAN, NAN, NAN, -1};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const tti_gguf_key *key = tti_gguf_find(gguf, names[i]);
        TT_CHECK(!key || (!key->is_array && tti_gguf_real(key, 0, &value[i])), TT_ERR_FILE,
                 "%s: key '%s' is not a number", tti_show_path(gguf->path), names[i]);
    }
    bool top_k_fits = value[3] >= -1 && value[3] <= INT32_MAX;
    TT_CHECK((isnan(value[0]) || (value[0] >= 0 && value[0] <= 1e6)) &&
                 (isnan(value[1]) || (value[1] >= 0 && value[1] <= 1)) &&
                 (isnan(value[2]) || (value[2] >= 0 && value[2] <= 1)) && top_k_fits,
             TT_ERR_FILE, "%s: a key 'general.sampling.*' is out of its range",
             tti_show_path(gguf->path));
    *generation_out = (tt_generation){.do_sample = -1,
                                      .temperature = value[0],
                                      .top_p = value[1],
                                      .min_p = value[2],
                                      .top_k = (int64_t)value[3]};
    return TT_OK;
}
