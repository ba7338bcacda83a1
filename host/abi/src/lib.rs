//! What crosses a boundary of rushmem, as types and numbers: the C ABI ([`c`]), the memory that kernels share
//! with the host ([`device`]), and the tables of operations and element types ([`table`], [`reduction`],
//! [`collective`]). It depends on nothing, so that every other crate may depend on it. A number stands here
//! once; C headers that repeat it are compared by a test.

pub mod c;
pub mod collective;
pub mod device;
pub mod reduction;
pub mod table;
