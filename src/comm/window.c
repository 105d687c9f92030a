/* window.c - memory that the ranks of a node share, as one MPI-3 window with a part per rank.
 *
 * Each part is touched by its owner first, so that its pages lie on the owner's NUMA node and are
 * really there: a shared-memory file system that is too small answers a later touch with SIGBUS,
 * not with an error. So its free space is compared with the need of the whole (real) node before
 * anything is allocated. Nor does MPI answer with an error where one rank's address space is too
 * small for the parts of all: it crashes, or its other ranks wait inside. So room is tried for
 * before, and all ranks hear of it. */
#include "comm_internal.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

static const char shm_path[] = "/dev/shm";
enum { MPI_ROOM_BYTES = 32 << 20 }; /* guessed: what MPI maps and allocates beside the parts */

/* Free bytes of the shared-memory file system; UINT64_MAX if there is none to ask.
 * TUTTI_TEST_SHM_BYTES replaces it in tests. */
static uint64_t shm_free_bytes(void)
{
    const char *fake = getenv("TUTTI_TEST_SHM_BYTES");
    if (fake && fake[0]) {
        return strtoull(fake, NULL, 10);
    }
    struct statvfs fs;
    if (statvfs(shm_path, &fs) != 0 || fs.f_blocks == 0) {
        return UINT64_MAX;
    }
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
}

/* A limit (ulimit -v) would let no more of the node's parts be mapped. */
static tt_status check_room(const char *what, uint64_t bytes)
{
    void *room = MAP_FAILED;
    if (bytes <= PTRDIFF_MAX - MPI_ROOM_BYTES) {
        room = mmap(NULL, (size_t)bytes + MPI_ROOM_BYTES, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    TT_CHECK(room != MAP_FAILED, TT_ERR_NOMEM,
             "no memory for %s: this rank cannot map the %llu bytes of its node's ranks "
             "(ulimit -v?)",
             what, (unsigned long long)bytes);
    munmap(room, (size_t)bytes + MPI_ROOM_BYTES);
    return TT_OK;
}

static tt_status check_space(tt_world *world, const char *what, size_t bytes)
{
    uint64_t *need = calloc((size_t)world->size, sizeof(*need));
    tt_status st = TT_OK;
    if (!need) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory to plan %s", what);
    }
    st = tt_world_agree(world, st);
    if (st != TT_OK) {
        free(need);
        return st;
    }
    uint64_t mine = bytes;
    st = tt_world_allgather(world, &mine, sizeof(mine), need);
    if (st == TT_OK) {
        uint64_t sum = 0, space = shm_free_bytes();
        int n_ranks = 0;
        for (int r = 0; r < world->size; r++) {
            if (world->real_node[r] == world->real_node[world->rank]) {
                sum += need[r];
                n_ranks++;
            }
        }
        if (sum > space) {
            st = TT_FAIL(
                TT_ERR_NOMEM,
                "%s need %llu bytes of %s for the %d ranks of %s, but %llu are free: enlarge it "
                "(mount -o remount,size=..., docker --shm-size) or lower the batch",
                what, (unsigned long long)sum, shm_path, n_ranks, world->host[world->rank],
                (unsigned long long)space);
        } else {
            st = check_room(what, sum);
        }
        st = tt_world_agree(world, st);
    }
    free(need);
    return st;
}

/* Each rank's own part starts at the first multiple of 64 in what MPI gave: all mappings start at a
 * page, so all ranks find the same place. */
static void *align_part(void *part)
{
    return (void *)tti_align((uintptr_t)part);
}

static tt_status allocate(tt_world *world, size_t bytes, tti_window *window)
{
    MPI_Info info;
    void *mine = NULL;
    TT_TRY(TT_MPI(MPI_Info_create(&info)));
    tt_status st = TT_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    if (st == TT_OK) {
        st = TT_MPI(MPI_Win_allocate_shared((MPI_Aint)(bytes + TTI_LINE), 1, info, world->node_comm,
                                            &mine, &window->win));
    }
    MPI_Info_free(&info);
    if (st != TT_OK) {
        return st;
    }
    window->is_open = true;
    window->bytes = bytes;
    world->window_bytes += bytes;
    TT_TRY(TT_MPI(MPI_Win_set_errhandler(window->win, MPI_ERRORS_RETURN)));
    TT_TRY(TT_MPI(MPI_Win_lock_all(MPI_MODE_NOCHECK, window->win)));
    for (int i = 0; i < world->n_peers; i++) {
        MPI_Aint part_bytes = 0;
        int unit = 0;
        TT_TRY(TT_MPI(MPI_Win_shared_query(window->win, i, &part_bytes, &unit, &window->base[i])));
        window->base[i] = align_part(window->base[i]);
    }
    memset(align_part(mine), 0, bytes);
    return TT_OK;
}

tt_status tti_window_create(tt_world *world, const char *what, size_t bytes, tti_window *window)
{
    memset(window, 0, sizeof(*window));
    TT_TRY(check_space(world, what, bytes + TTI_LINE));
    window->base = calloc((size_t)world->n_peers, sizeof(*window->base));
    tt_status st = TT_OK;
    if (!window->base) {
        st = TT_FAIL(TT_ERR_NOMEM, "no memory for the table of %s", what);
    }
    st = tt_world_agree(world, st);
    if (st == TT_OK) {
        tti_lock(world);
        st = allocate(world, bytes, window);
        tti_unlock(world);
        st = tt_world_agree(world, st); /* also: nobody reads before all parts are zeroed */
        if (st !=
            TT_OK) { /* freeing is collective: all do it, or it stays until the process ends */
            int64_t is_lacking = !window->is_open;
            window->is_open = tt_world_max_i64(world, &is_lacking, 1) == TT_OK && !is_lacking;
        }
    }
    return st;
}

void tti_window_destroy(tt_world *world, tti_window *window)
{
    if (window->is_open && tti_meet(world)) {
        tti_lock(world);
        MPI_Win_unlock_all(window->win);
        MPI_Win_free(&window->win);
        tti_unlock(world);
    }
    world->window_bytes -= window->bytes;
    window->bytes = 0;
    window->is_open = false;
    free(window->base);
    window->base = NULL;
}
