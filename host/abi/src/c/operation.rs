//! The numbers of what operations take: element types, atomics, comparisons and signal updates.
//! [`crate::table`] says what each means; kernels use the same numbers (`device/include/rushmem/abi.h`).

/// Element type of an atomic, signal or wait.
pub const RUSHMEM_INT32: i32 = 0;
/// `uint32_t`.
pub const RUSHMEM_UINT32: i32 = 1;
/// `int64_t`.
pub const RUSHMEM_INT64: i32 = 2;
/// `uint64_t`.
pub const RUSHMEM_UINT64: i32 = 3;
/// `float`: fetch, set and swap only.
pub const RUSHMEM_FLOAT: i32 = 4;
/// `double`: fetch, set and swap only.
pub const RUSHMEM_DOUBLE: i32 = 5;

/// Atomic operations (OpenSHMEM 1.5, section 9.8). The non-fetching ones leave `*fetched` alone.
pub const RUSHMEM_ATOMIC_FETCH: i32 = 0;
/// Stores the value.
pub const RUSHMEM_ATOMIC_SET: i32 = 1;
/// Stores the value and fetches the old one.
pub const RUSHMEM_ATOMIC_SWAP: i32 = 2;
/// Stores the value if the target equals the comparand; fetches the old value.
pub const RUSHMEM_ATOMIC_COMPARE_SWAP: i32 = 3;
/// Adds (wrapping).
pub const RUSHMEM_ATOMIC_ADD: i32 = 4;
/// Adds and fetches the old value. An increment is an addition of one.
pub const RUSHMEM_ATOMIC_FETCH_ADD: i32 = 5;
/// Bitwise and.
pub const RUSHMEM_ATOMIC_AND: i32 = 6;
/// Bitwise and, fetching the old value.
pub const RUSHMEM_ATOMIC_FETCH_AND: i32 = 7;
/// Bitwise or.
pub const RUSHMEM_ATOMIC_OR: i32 = 8;
/// Bitwise or, fetching the old value.
pub const RUSHMEM_ATOMIC_FETCH_OR: i32 = 9;
/// Bitwise exclusive or.
pub const RUSHMEM_ATOMIC_XOR: i32 = 10;
/// Bitwise exclusive or, fetching the old value.
pub const RUSHMEM_ATOMIC_FETCH_XOR: i32 = 11;

/// Comparisons of wait and test.
pub const RUSHMEM_CMP_EQ: i32 = 0;
/// Not equal.
pub const RUSHMEM_CMP_NE: i32 = 1;
/// Greater than.
pub const RUSHMEM_CMP_GT: i32 = 2;
/// Greater or equal.
pub const RUSHMEM_CMP_GE: i32 = 3;
/// Less than.
pub const RUSHMEM_CMP_LT: i32 = 4;
/// Less or equal.
pub const RUSHMEM_CMP_LE: i32 = 5;

/// The signal word becomes the value.
pub const RUSHMEM_SIGNAL_SET: i32 = 0;
/// The value is added to the signal word.
pub const RUSHMEM_SIGNAL_ADD: i32 = 1;
