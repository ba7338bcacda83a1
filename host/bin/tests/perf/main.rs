//! `rushmem-perf` as a user sees it: every measure runs, its reports hold what they should, and its figures
//! are not absurd. How fast rushmem is, a busy CI machine and a debug build cannot say: the record is in
//! `docs/benchmarks`.

mod common;
mod device;
mod far;
mod host;
mod moe;
mod shmem;
