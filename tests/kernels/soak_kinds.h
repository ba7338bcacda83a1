/* The kinds of operations of soak.cu, in the order of the table in tests/soak/program.rs. A test compares
 * them. */
#define SOAK_KINDS
enum soak_kind {
  P,
  PUT,
  PUT_NBI,
  PUT_SIGNAL,
  PUT_SIGNAL_NBI,
  IPUT,
  GET,
  GET_NBI,
  IGET,
  G,
  SIGNAL,
  SET,
  ADD,
  FETCH_ADD,
  SWAP,
  COMPARE_SWAP,
  SHARED_ADD,
  FENCE,
  QUIET,
};
