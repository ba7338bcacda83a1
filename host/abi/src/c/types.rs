//! The structs of the C ABI, and the constants that stand in them.

use std::os::raw::{c_char, c_void};

/// A GPU where the machine has one, else the CPU.
pub const RUSHMEM_DEVICE_AUTO: i32 = 1;
/// The CPU.
pub const RUSHMEM_DEVICE_CPU: i32 = 2;
/// A CUDA GPU.
pub const RUSHMEM_DEVICE_CUDA: i32 = 3;

/// Length of a unique ID.
pub const RUSHMEM_UID_BYTES: usize = 128;

/// An opaque unique ID: made on one PE by `rushmem_uid_create`, carried to the others by the caller.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rushmem_uid_t {
    /// The bytes.
    pub bytes: [u8; RUSHMEM_UID_BYTES],
}

/// One PE's membership of one job. Opaque.
#[repr(C)]
pub struct rushmem_world_t {
    _private: [u8; 0],
}

/// A claim on the memory of a world. Opaque.
#[repr(C)]
pub struct rushmem_memory_t {
    _private: [u8; 0],
}

/// A compiled and loaded kernel source. Opaque.
#[repr(C)]
pub struct rushmem_module_t {
    _private: [u8; 0],
}

/// A kernel of a module. Opaque; lives as long as its module.
#[repr(C)]
pub struct rushmem_kernel_t {
    _private: [u8; 0],
}

/// A point in a stream's work that can be waited for. Opaque.
#[repr(C)]
pub struct rushmem_event_t {
    _private: [u8; 0],
}

/// Some PEs of a world that synchronise and communicate together. Opaque.
#[repr(C)]
pub struct rushmem_team_t {
    _private: [u8; 0],
}

/// A team as kernels take it, by value: `rushmem/abi.h` of the device's headers has its fields.
#[repr(C)]
pub struct rushmem_team {
    _private: [u8; 0],
}

/// What a new team is to have. Zero the struct, set `size`, then what you need; null stands for zeroes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_team_config_t {
    /// `sizeof(rushmem_team_config_t)` of the caller.
    pub size: u32,
    /// Slot sets, in each of which one collective of a PE's kernels and streams may be under way at a time;
    /// 0: one.
    pub slot_sets: u32,
}

/// A team, as one of its members sees it. Constant for the team's life.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_team_info_t {
    /// This PE's number in the team.
    pub my_pe: i32,
    /// Number of members.
    pub n_pes: i32,
    /// The team's number, for texts: the same on all members; 0: the world.
    pub number: i32,
    /// Its slot sets.
    pub slot_sets: i32,
    /// Where `members` is null, member `i` is PE `start + i * stride` of the world.
    pub start: i32,
    /// See `start`.
    pub stride: i32,
    /// The members' numbers in the world, or null. Lives as long as the team.
    pub members: *const i32,
    /// Bytes of symmetric memory that the team takes on each member.
    pub bytes: u64,
}

/// `rushmem_team_split`: a PE that gets no team.
pub const RUSHMEM_TEAM_NO_COLOUR: i64 = -1;

/// `rushmem_team_compare`: the same members in the same order.
pub const RUSHMEM_TEAM_IDENTICAL: i32 = 0;
/// The same members in another order.
pub const RUSHMEM_TEAM_REORDERED: i32 = 1;
/// Not the same members.
pub const RUSHMEM_TEAM_DIFFERENT: i32 = 2;

/// How to start. Zero the struct, set `size`, then what you need; all zero means "look at the environment".
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rushmem_init_attr_t {
    /// `sizeof(rushmem_init_attr_t)` of the caller.
    pub size: u32,
    /// Reserved, zero.
    pub flags: u32,
    /// A unique ID (with `rank` and `n_pes`), or null.
    pub uid: *const rushmem_uid_t,
    /// `host:port` at which rank 0 listens (with `rank` and `n_pes`), or null. Any start order.
    pub address: *const c_char,
    /// A pointer to an `MPI_Comm` of an MPI that is already initialised, or null.
    pub mpi_comm: *const c_void,
    /// This PE's rank; read with `uid` or `address`.
    pub rank: i32,
    /// Number of PEs; read with `uid` or `address`.
    pub n_pes: i32,
    /// The kind of device: one of `RUSHMEM_DEVICE_*`; 0: `RUSHMEM_DEVICE` of the environment, or its default.
    pub device: i32,
    /// With `RUSHMEM_DEVICE_CUDA`: 1 + the number of the GPU among those that the process sees; 0: rushmem
    /// chooses.
    pub gpu: i32,
    /// Upper limit of the symmetric heap in bytes; 0: `RUSHMEM_HEAP_MAX` or its default.
    pub heap_max: u64,
    /// Limit of start-up in milliseconds; 0: `RUSHMEM_INIT_TIMEOUT` or its default.
    pub init_timeout_ms: u64,
}

/// What the fast path of a client needs to reach near PEs without a call: constant for the world's life.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_view_t {
    /// This PE.
    pub my_pe: i32,
    /// Number of PEs.
    pub n_pes: i32,
    /// First PE of the consecutive run of PEs around `my_pe` whose heaps the host may load and store
    /// directly. There may be others (`rushmem_near`).
    pub near_first: i32,
    /// Length of that run; 0 where the heaps are in GPU memory.
    pub near_count: i32,
    /// Base address of this PE's heap.
    pub heap_base: u64,
    /// Address distance from one near PE's heap to the next one's: PE `q`'s copy of `p` is at
    /// `p + (q - my_pe) * stride` for `q` in the run.
    pub stride: u64,
    /// Points at a word that becomes non-zero when the job is broken (a PE died).
    pub broken: *const u32,
    /// The kind of this PE's device: `RUSHMEM_DEVICE_CPU` or `RUSHMEM_DEVICE_CUDA`. Its heap is in that
    /// device's memory.
    pub device: i32,
    /// The GPU's number among those that the process sees; -1 for the CPU.
    pub gpu: i32,
}

/// The near PEs are consecutive.
pub const RUSHMEM_NEAR_RUN: i32 = 0;
/// Every k-th PE is near, for some of them in a row.
pub const RUSHMEM_NEAR_STEPS: i32 = 1;
/// The near PEs are neither: a table has them.
pub const RUSHMEM_NEAR_TABLE: i32 = 2;
/// In that table, of a PE that is not near.
pub const RUSHMEM_NEAR_NOT: u64 = 1;

/// The near PEs: those whose heaps are mapped for this PE's device, itself included. Constant for the world's
/// life.
///
/// But for `RUSHMEM_NEAR_TABLE`, with `i = (uint32_t)(q - first) * inverse` rotated right by `shift` bits, PE
/// `q` is near where `i < count`; then `q` is `first + i * step`, and its copy of `p` is at
/// `p + (q - my_pe) * apart`, modulo 2^64.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_near_t {
    /// One of `RUSHMEM_NEAR_*`.
    pub shape: i32,
    /// Number of near PEs.
    pub count: i32,
    /// The lowest of them.
    pub first: i32,
    /// From one to the next; 0 where they are in a table.
    pub step: i32,
    /// Of the odd part of `step`, modulo 2^32: 1 for a run.
    pub inverse: u32,
    /// How often 2 divides `step`.
    pub shift: u32,
    /// See above.
    pub apart: u64,
    /// `RUSHMEM_NEAR_TABLE`: for each PE of the job what is added to `p`, modulo 2^64, for its copy, or
    /// `RUSHMEM_NEAR_NOT`. Lives as long as the world. Else null.
    pub distances: *const u64,
}

/// Where a PE runs and how it is reached. Strings live as long as the world.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rushmem_peer_t {
    /// The PE.
    pub pe: i32,
    /// Its process.
    pub pid: i32,
    /// Its host's name.
    pub host: *const c_char,
    /// `direct`: mapped, by loads and stores; `ucx` or `fake`: over that network; `none`: no way leads there.
    pub transport: *const c_char,
    /// Why that transport.
    pub reason: *const c_char,
}

/// What a PE has asked another one for so far: its host, streams of the CPU device included, and its kernels
/// there. All but `retries` is counted under `RUSHMEM_COUNTERS=1` and in traced runs alone (`RUSHMEM_TRACE`),
/// else 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct rushmem_counters_t {
    /// Operations of the host.
    pub operations: u64,
    /// What they move.
    pub bytes: u64,
    /// How long they took, in ns.
    pub ns: u64,
    /// Those that took as long as `RUSHMEM_STALL_REPORT`.
    pub stalls: u64,
    /// Those that found too much under way on the network, and were tried again until there was room.
    pub retries: u64,
    /// The same of kernels: operations,
    pub kernel_operations: u64,
    /// bytes,
    pub kernel_bytes: u64,
    /// ns
    pub kernel_ns: u64,
    /// and stalls.
    pub kernel_stalls: u64,
}

/// The symmetric heap in numbers (bytes).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct rushmem_heap_info_t {
    /// Handed out and not yet freed, rounded up to the allocation granule.
    pub used: u64,
    /// Backed by memory now.
    pub committed: u64,
    /// The limit of growth.
    pub max: u64,
    /// Live allocations.
    pub allocations: u64,
}

/// Kinds of kernel parameters.
pub const RUSHMEM_ARG_POINTER: i32 = 0;
/// A signed integer of `size` bytes.
pub const RUSHMEM_ARG_INT: i32 = 1;
/// An unsigned integer (or bool) of `size` bytes.
pub const RUSHMEM_ARG_UINT: i32 = 2;
/// A floating-point number of `size` bytes.
pub const RUSHMEM_ARG_FLOAT: i32 = 3;
/// A struct or anything else passed by value.
pub const RUSHMEM_ARG_STRUCT: i32 = 4;
/// Not known (a GPU binary tells sizes only).
pub const RUSHMEM_ARG_UNKNOWN: i32 = 5;

/// The type of one kernel argument or parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct rushmem_arg_type_t {
    /// One of `RUSHMEM_ARG_*`.
    pub kind: i32,
    /// Its size in bytes.
    pub size: u32,
    /// For a pointer: the kind of what it points at (`RUSHMEM_ARG_UNKNOWN` for void or structs).
    pub pointee_kind: i32,
    /// For a pointer: the size of what it points at, 0 where unknown.
    pub pointee_size: u32,
}

/// In `rushmem_launch_t.flags`: the launch's blocks need not all be resident. They run in turns, any number
/// of them, as those of CUDA's ordinary launches do; so none may wait for another one.
pub const RUSHMEM_LAUNCH_IN_TURNS: u32 = 1;

/// The same: the kernel begins with `rushmem::await_stream()`, so that it may start while the kernel before
/// it on the stream ends (CUDA's programmatic dependent launch), where the device and `RUSHMEM_EARLY_LAUNCH`
/// have that.
pub const RUSHMEM_LAUNCH_EARLY: u32 = 2;

/// A launch configuration, in CUDA's terms.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_launch_t {
    /// `sizeof(rushmem_launch_t)` of the caller.
    pub size: u32,
    /// `RUSHMEM_LAUNCH_IN_TURNS` and `RUSHMEM_LAUNCH_EARLY`, or 0.
    pub flags: u32,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory for each block.
    pub shared_bytes: u64,
    /// The stream, as the functions on streams take it; null means the world's default stream.
    pub stream: *mut c_void,
    /// Blocks of a thread block cluster in x, y, z; zeroes for none. Only where the device is a GPU that has
    /// them.
    pub cluster: [u32; 3],
    /// Reserved, zero.
    pub reserved: u32,
}

/// What a GPU can do, bits of `rushmem_gpu_t.flags`. Virtual memory management, which a symmetric heap needs.
pub const RUSHMEM_GPU_VMM: u32 = 1;
/// Its memory can be handed to another process as a file descriptor: what PEs in several processes need.
pub const RUSHMEM_GPU_POSIX_FD: u32 = 2;
/// A launch can insist that all of its blocks are resident.
pub const RUSHMEM_GPU_COOPERATIVE: u32 = 4;
/// A launch can have thread block clusters.
pub const RUSHMEM_GPU_CLUSTERS: u32 = 8;
/// Streams can wait for and write 64-bit words.
pub const RUSHMEM_GPU_STREAM_WORDS: u32 = 16;
/// Network cards may reach its symmetric memory (GPUDirect RDMA).
pub const RUSHMEM_GPU_RDMA: u32 = 32;

/// A GPU, as the driver describes it. Set `size`; strings live for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_gpu_t {
    /// `sizeof(rushmem_gpu_t)` of the caller.
    pub size: u32,
    /// Its number in this process; another process may count otherwise.
    pub index: i32,
    /// Its model.
    pub name: *const c_char,
    /// Its place on the bus, for example `0000:1b:00.0`.
    pub pci_bus_id: *const c_char,
    /// The same for the same GPU in every process of the host.
    pub uuid: [u8; 16],
    /// Compute capability: 9 of 9.0.
    pub capability_major: i32,
    /// Compute capability: 0 of 9.0.
    pub capability_minor: i32,
    /// Streaming multiprocessors.
    pub sms: i32,
    /// Bits `RUSHMEM_GPU_*`.
    pub flags: u32,
    /// Bytes of memory.
    pub memory: u64,
}

/// A program or library that rushmem finds on the machine. Strings live for ever and are never null.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_tool_t {
    /// Its file; empty where there is none that works.
    pub path: *const c_char,
    /// Its version, for a person.
    pub version: *const c_char,
    /// Why there is none, and what to do about it; empty where there is one.
    pub error: *const c_char,
}

/// The parts of CUDA that rushmem uses. Set `size`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_cuda_t {
    /// `sizeof(rushmem_cuda_t)` of the caller.
    pub size: u32,
    /// The CUDA version that the driver supports as CUDA counts (13.0 is 13000); 0 without a driver that can
    /// be used.
    pub driver: i32,
    /// Why the driver cannot be used; empty where it can, and where there is none. Lives for ever.
    pub driver_error: *const c_char,
    /// NVRTC, which compiles kernels for GPUs.
    pub nvrtc: rushmem_tool_t,
    /// nvJitLink, which links them with the device library. Without it kernels are compiled whole.
    pub nvjitlink: rushmem_tool_t,
    /// CUDA version of the device library that the runtime carries, for nvJitLink to link; empty where it was
    /// built without nvcc. Lives for ever.
    pub device_library: *const c_char,
}

/// How a collective on a stream is launched, from one size on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_collective_launch_t {
    /// As in the functions' names: `reduce`. Lives for ever.
    pub collective: *const c_char,
    /// From so many bytes on: those of a PE's larger array.
    pub from_bytes: u64,
    /// Blocks.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Where the numbers come from: `measured`, `estimated`, or `RUSHMEM_COLLECTIVES`. Lives for ever.
    pub origin: *const c_char,
    /// Which way the data takes. Lives for ever.
    pub algorithm: *const c_char,
}

/// What `rushmem_init` without an attribute would do here. Set `size`; strings live for ever and are never
/// null.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rushmem_job_t {
    /// `sizeof(rushmem_job_t)` of the caller.
    pub size: u32,
    /// This PE; -1 where only MPI knows.
    pub rank: i32,
    /// Number of PEs; -1 where only MPI knows.
    pub n_pes: i32,
    /// This PE among those of its host; -1 where the launcher does not say.
    pub local_rank: i32,
    /// PEs of this host; -1 where the launcher does not say.
    pub local_pes: i32,
    /// Reserved, zero.
    pub reserved: i32,
    /// `rushmem-run`, `torchrun`, `slurm`, `openmpi`, `mpich` or `none`.
    pub launcher: *const c_char,
    /// What it was recognised by.
    pub launcher_why: *const c_char,
    /// How the PEs would meet: `uid`, `mpi` or `single`; empty where a setting makes no sense.
    pub bootstrap: *const c_char,
    /// Why so, or which setting makes no sense.
    pub bootstrap_why: *const c_char,
    /// The kind of device: `cpu` or `cuda`; empty where the one that is wanted cannot be had.
    pub device: *const c_char,
    /// Why that kind, or what is missing and what to do about it.
    pub device_why: *const c_char,
}
