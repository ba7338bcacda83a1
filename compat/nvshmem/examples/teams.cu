/* Teams: every other PE, and the rows and columns of a grid of PEs. Their members sum up among themselves,
 * inside a kernel and on a stream. */
#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void __launch_bounds__(1024)
    sums(nvshmem_team_t team, long *to, const long *from, int n, int *place) {
  nvshmemx_long_sum_reduce_block(team, to, from, n);
  if (threadIdx.x == 0) {
    place[0] = nvshmem_team_my_pe(team);
    place[1] = nvshmem_team_n_pes(team);
    /* Member 0 among all PEs. */
    place[2] = nvshmem_team_translate_pe(team, 0, NVSHMEM_TEAM_WORLD);
  }
}

/* The host's part. */
#include "example.h"

/* The words of PEs `first`, `first + step` ... below `end`, summed up. */
static long sum_of(const job &j, int first, int step, int end, size_t i) {
  long sum = 0;
  for (int pe = first; pe < end; pe += step) sum += value_of(j, pe, i);
  return sum;
}

int main(int argc, char **argv) {
  enum { N = 57, ACROSS = 2 };
  const job j = start(argc, argv);
  long *from = symmetric<long>(N), *to = symmetric<long>(N);
  int *place = symmetric<int>(3);
  fill(j, from, values_of<long>(j, j.me, N));
  nvshmem_barrier_all();

  /* Both halves are made by all PEs; each is in one. */
  nvshmem_team_t even, odd = NVSHMEM_TEAM_INVALID;
  FINE(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 2, (j.n + 1) / 2, nullptr, 0, &even));
  if (j.n > 1) FINE(nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 1, 2, j.n / 2, nullptr, 0, &odd));
  nvshmem_team_t half = j.me % 2 == 0 ? even : odd;
  sums<<<1, 64, 0, j.stream>>>(half, to, from, N, place);
  const std::vector<long> got = look<long>(j, to, N);
  const std::vector<int> where = look<int>(j, place, 3);
  for (size_t i = 0; i < N; ++i) SAME(got[i], sum_of(j, j.me % 2, 2, j.n, i));
  SAME(where[0], j.me / 2);
  SAME(where[1], (j.n + 1 - j.me % 2) / 2);
  SAME(where[2], j.me % 2);
  SAME(nvshmem_team_translate_pe(half, where[0], NVSHMEM_TEAM_WORLD), j.me);
  SAME(nvshmem_team_my_pe(j.me % 2 == 0 ? odd : even), -1);
  nvshmem_team_destroy(half);
  /* All have looked: the next sum may write. */
  nvshmem_barrier_all();

  /* Rows of two PEs; the last may be shorter. */
  nvshmem_team_t row, column;
  FINE(nvshmem_team_split_2d(NVSHMEM_TEAM_WORLD, ACROSS, nullptr, 0, &row, nullptr, 0, &column));
  const int first = j.me / ACROSS * ACROSS, after = first + ACROSS < j.n ? first + ACROSS : j.n;
  FINE(nvshmemx_long_sum_reduce_on_stream(row, to, from, N, j.stream));
  const std::vector<long> of_row = look<long>(j, to, N);
  for (size_t i = 0; i < N; ++i) SAME(of_row[i], sum_of(j, first, 1, after, i));
  nvshmem_barrier_all();
  FINE(nvshmem_long_max_reduce(column, to, from, N));
  const std::vector<long> of_column = look<long>(j, to, N);
  for (size_t i = 0; i < N; ++i) {
    long most = 0;
    for (int pe = j.me % ACROSS; pe < j.n; pe += ACROSS) most = std::max<long>(most, value_of(j, pe, i));
    SAME(of_column[i], most);
  }
  nvshmem_team_destroy(column);
  nvshmem_team_destroy(row);
  nvshmem_barrier_all();
  nvshmem_free(place);
  nvshmem_free(to);
  nvshmem_free(from);
  end(j);
  return 0;
}
