/* A C program that brings MPI up itself and hands rushmem's plug-in a communicator, as an MPI application
 * does. It sees the plug-in as a stranger would: through its own copy of the C vtable. Started on 4 ranks by
 * ../mpi.rs with the plug-in's path; prints "existing ok" on rank 0. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct error { int64_t rank; char text[2048]; };

struct args {
    uint32_t abi_version, struct_size, vtable_size, reserved;
    const void *comm;
    uint64_t timeout_ms, init_timeout_ms;
    struct error *error;
};

struct vtable {
    uint32_t abi_version, struct_size;
    void *ctx;
    const char *name;
    uint32_t rank, n_ranks;
    int (*allgather)(void *, const uint8_t *, size_t, uint8_t *, struct error *);
    int (*alltoall)(void *, const uint8_t *, size_t, uint8_t *, struct error *);
    int (*barrier)(void *, struct error *);
    int (*broadcast)(void *, uint8_t *, size_t, uint32_t, struct error *);
    int (*death)(void *, struct error *);
    void (*abort_)(void *, const char *);
    int (*finalize)(void *, struct error *);
    void (*destroy)(void *);
};

static struct error error;

#define CHECK(what)                                                                              \
    do {                                                                                         \
        if (!(what)) {                                                                           \
            fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #what, error.text);    \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

int main(int argc, char **argv) {
    CHECK(argc == 3);
    int level, rank, size;
    /* "single": plain MPI_Init, as most programs call it. */
    if (strcmp(argv[2], "single") == 0) MPI_Init(&argc, &argv);
    else MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(size == 4);

    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    int (*entry)(const struct args *, struct vtable *) =
        (int (*)(const struct args *, struct vtable *))dlsym(library, "rushmem_bootstrap_plugin_v1");
    CHECK(entry);

    /* The odd and the even ranks are two worlds, each ordered backwards. */
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    struct args args = {1, sizeof(struct args), sizeof(struct vtable), 0, &half, 20000, 20000, &error};
    for (int round = 0; round < 3; round++) {
        struct vtable b;
        memset(&b, 0, sizeof b);
        CHECK(entry(&args, &b) == 0);
        CHECK(b.abi_version == 1 && b.struct_size == sizeof b && strcmp(b.name, "mpi") == 0);
        CHECK(b.n_ranks == 2 && (int)b.rank == (rank < 2));

        /* The user's own traffic, in flight across ours on the same communicator with tags of any kind. */
        int token = -1, mine = 100 * round + rank, other = 1 - (int)b.rank;
        MPI_Request requests[2];
        MPI_Irecv(&token, 1, MPI_INT, other, MPI_ANY_TAG, half, &requests[0]);
        uint8_t all[2] = {0, 0}, one = (uint8_t)(10 * round + rank);
        CHECK(b.allgather(b.ctx, &one, 1, all, &error) == 0);
        CHECK(all[b.rank] == one && all[other] == 10 * round + (rank ^ 2));
        CHECK(b.barrier(b.ctx, &error) == 0);
        MPI_Isend(&mine, 1, MPI_INT, other, 1, half, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(token == 100 * round + (rank ^ 2));

        uint64_t word = b.rank == 1 ? 4711u + round : 0;
        CHECK(b.broadcast(b.ctx, (uint8_t *)&word, sizeof word, 1, &error) == 0);
        CHECK(word == 4711u + round);
        /* A root out of range is refused, and the bootstrap goes on. */
        CHECK(b.broadcast(b.ctx, (uint8_t *)&word, sizeof word, 2, &error) == -1 && strstr(error.text, "rank 2"));
        CHECK(b.finalize(b.ctx, &error) == 0);
        b.destroy(b.ctx);
    }

    /* What cannot be a world is refused with a reason. */
    MPI_Comm null = MPI_COMM_NULL;
    struct vtable b;
    args.comm = &null;
    CHECK(entry(&args, &b) == -1 && strstr(error.text, "MPI_COMM_NULL"));

    /* MPI is still up, still the user's, and still works. */
    int finalized = 1, sum = 0;
    MPI_Finalized(&finalized);
    CHECK(!finalized);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == 6);
    MPI_Comm_free(&half);

    /* A world that outlives MPI: its calls fail, and dropping it is harmless. */
    args.comm = NULL;
    CHECK(entry(&args, &b) == 0 && b.n_ranks == 4 && (int)b.rank == rank);
    MPI_Finalize();
    CHECK(b.barrier(b.ctx, &error) == -4 && strstr(error.text, "finalised"));
    b.destroy(b.ctx);
    CHECK(entry(&args, &b) == -4 && strstr(error.text, "finalised"));
    if (rank == 0) puts("existing ok");
    return 0;
}
