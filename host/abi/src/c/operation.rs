//! The numbers of what operations take: element types, atomics, reductions, comparisons and signal updates.
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
/// `int8_t`. This and the following are types of reductions alone.
pub const RUSHMEM_INT8: i32 = 6;
/// `uint8_t`.
pub const RUSHMEM_UINT8: i32 = 7;
/// `int16_t`.
pub const RUSHMEM_INT16: i32 = 8;
/// `uint16_t`.
pub const RUSHMEM_UINT16: i32 = 9;
/// 16-bit float of IEEE 754 (`__half`): combined in 32 bits, and rounded once.
pub const RUSHMEM_HALF: i32 = 10;
/// The upper half of a float (`__nv_bfloat16`): combined in 32 bits, and rounded once.
pub const RUSHMEM_BFLOAT16: i32 = 11;
/// `float _Complex`: sums and products.
pub const RUSHMEM_COMPLEX_FLOAT: i32 = 12;
/// `double _Complex`: sums and products.
pub const RUSHMEM_COMPLEX_DOUBLE: i32 = 13;

/// Operators of reductions and scans (OpenSHMEM 1.5, section 9.9.9). Integers wrap.
pub const RUSHMEM_SUM: i32 = 0;
/// Product.
pub const RUSHMEM_PROD: i32 = 1;
/// The smaller one; no complex numbers.
pub const RUSHMEM_MIN: i32 = 2;
/// The larger one; no complex numbers.
pub const RUSHMEM_MAX: i32 = 3;
/// Bitwise and; integers alone.
pub const RUSHMEM_AND: i32 = 4;
/// Bitwise or; integers alone.
pub const RUSHMEM_OR: i32 = 5;
/// Bitwise exclusive or; integers alone.
pub const RUSHMEM_XOR: i32 = 6;

/// Atomic operations (OpenSHMEM 1.5, section 9.7). The non-fetching ones leave `*fetched` alone.
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

/// The context of operations that name none (`rushmem_context_enter`).
pub const RUSHMEM_CONTEXT_DEFAULT: u64 = 0;

/// The signal word becomes the value.
pub const RUSHMEM_SIGNAL_SET: i32 = 0;
/// The value is added to the signal word.
pub const RUSHMEM_SIGNAL_ADD: i32 = 1;
