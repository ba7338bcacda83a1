//! Operations of several PEs, which are threads of this process: on the CPU device, near and over the
//! networks that `RUSHMEM_TEST_WAY` names (`fake.rs`); on a GPU where there is one.

mod calls;
mod collective_gpu;
mod context;
mod job;
mod litmus;
mod pageable;
mod retries;
mod stream;
mod stream_gpu;
mod strided_signal;
mod wait;
