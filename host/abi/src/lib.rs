//! What crosses a boundary of rushmem, as types and numbers: the C ABI ([`c`]). It depends on nothing, so that every
//! other crate may depend on it.

pub mod c;
