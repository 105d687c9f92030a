/* default_model.c - finds the model that ships with tutti, without any path of the build machine in
 * the program. */
#include "config.h"
#include "cli.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_LEVELS = 5
}; /* folders above the executable: build/src/cli/.libs is four below the source tree */

static const char *const places[] = {"models/tiny-moe", "share/tutti/models/tiny-moe"};
enum { N_PLACES = sizeof(places) / sizeof(places[0]) };

/* Sets path = folder/place and says whether a model lies there. */
static bool try_place(const char *folder, const char *place, char *path)
{
    char probe[TTI_CLI_PATH_BYTES];
    int n = snprintf(path, TTI_CLI_PATH_BYTES, "%s/%s", folder, place);
    int m = snprintf(probe, sizeof(probe), "%s/%s/config.json", folder, place);
    return n > 0 && m > 0 && m < TTI_CLI_PATH_BYTES && access(probe, R_OK) == 0;
}

tt_status tti_cli_default_model(char *path_out)
{
    const char *data = getenv("TUTTI_DATADIR");
    if (data && data[0]) {
        TT_CHECK(try_place(data, places[0], path_out), TT_ERR_USAGE,
                 "no MODEL given, and TUTTI_DATADIR=%s holds no %s", data, places[0]);
        return TT_OK;
    }
    char folder[TTI_CLI_PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    if (n > 0) {
        folder[n] = 0;
        for (int level = 0; level < MAX_LEVELS; level++) {
            char *slash = strrchr(folder, '/');
            if (!slash || slash == folder) {
                break;
            }
            *slash = 0;
            for (int i = 0; i < N_PLACES; i++) {
                if (try_place(folder, places[i], path_out)) {
                    return TT_OK;
                }
            }
        }
    }
    TT_CHECK(try_place(TT_PKGDATADIR, places[0], path_out), TT_ERR_USAGE,
             "no MODEL given, and models/tiny-moe is neither near the program nor in %s "
             "(TUTTI_DATADIR names another folder)",
             TT_PKGDATADIR);
    return TT_OK;
}
