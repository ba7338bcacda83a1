//! Kernels: loading a source, looking at its kernels, launching, waiting.

use std::ffi::{c_void, CStr};
use std::os::raw::c_char;

use super::{guard, world, write_out};
use crate::error::{err, Result};
use crate::kernel::handle::Handle;
use crate::kernel::{LoadedKernel, LoadedModule};
use rushmem_abi::c::*;

/// The text that a C string holds.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(err!(INVALID_ARGUMENT, "{name} is null"));
    }
    // SAFETY: per contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| err!(INVALID_ARGUMENT, "{name} is not UTF-8"))
}

/// `n` things at `first`, which may be null where `n` is 0.
///
/// # Safety
/// `first` is null or valid for `n` reads.
unsafe fn list<'a, T>(first: *const T, n: usize, name: &str) -> Result<&'a [T]> {
    match (first.is_null(), n) {
        (_, 0) => Ok(&[]),
        (true, n) => Err(err!(INVALID_ARGUMENT, "{name} is null, but {n} are announced")),
        // No list is that long, and a slice must not be.
        (false, n) if n > isize::MAX as usize / size_of::<T>().max(1) => {
            Err(err!(INVALID_ARGUMENT, "{name} cannot have {n} parts"))
        }
        (false, _) if !first.is_aligned() => {
            Err(err!(INVALID_ARGUMENT, "{name} at {first:p} is not aligned"))
        }
        // SAFETY: per contract.
        (false, n) => Ok(unsafe { std::slice::from_raw_parts(first, n) }),
    }
}

/// Compiles a CUDA C++ source for this PE's device and loads it. Local, but mostly called by all PEs: those
/// of a host that load the same source at once compile it once, and compiled sources are kept in a cache
/// (`RUSHMEM_CACHE_DIR`). `name` stands for the source in messages, such as `ring.cu`. `options` are further
/// compiler arguments (`-D…`, `-I…`); `--nvrtc=ARGUMENT` is one for the compiler of GPUs alone,
/// `--cxx=ARGUMENT` for that of the CPU device, and `--kernel=scale<float>` asks for an instance of a
/// kernel template.
///
/// `RUSHMEM_ERR_COMPILE`: the text holds the compiler's messages, with the source's own lines.
///
/// # Safety
/// `w` is a world's handle; `source` is null or holds `source_bytes` bytes; `name` is null or a C string;
/// `options` is null or holds `n_options` C strings; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_module_load(
    w: *mut rushmem_world_t,
    source: *const c_char,
    source_bytes: usize,
    name: *const c_char,
    options: *const *const c_char,
    n_options: usize,
    out: *mut *mut rushmem_module_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let w = world(w)?;
            let source = list(source.cast::<u8>(), source_bytes, "source")?;
            let source =
                std::str::from_utf8(source).map_err(|_| err!(INVALID_ARGUMENT, "source is not UTF-8"))?;
            let name = if name.is_null() { "kernel.cu" } else { text(name, "name")? };
            let options =
                list(options, n_options, "options")?.iter().map(|o| text(*o, "an option").map(str::to_owned));
            let options = options.collect::<Result<Vec<_>>>()?;
            if out.is_null() {
                return Err(err!(INVALID_ARGUMENT, "out is null"));
            }
            write_out(out, w.kernels().load(name, source, options)?.as_raw(), "out")
        }
    })
}

/// Loads machine code that nvcc or nvJitLink made (a cubin, a fatbin, or PTX), whose kernels were linked with
/// `librushmem_device.a` or compiled from the headers alone. Only where the PE's device is a GPU. `name` is
/// for messages.
///
/// `RUSHMEM_ERR_VERSION`: built with device headers of another rushmem. `RUSHMEM_ERR_UNSUPPORTED`: no code
/// for this GPU, or the device is the CPU. `RUSHMEM_ERR_COMPILE`: not machine code, or cut off.
///
/// # Safety
/// `w` is a world's handle; `code` is null or holds `bytes` bytes; `name` is null or a C string; `out` is
/// null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_module_load_binary(
    w: *mut rushmem_world_t,
    code: *const c_void,
    bytes: usize,
    name: *const c_char,
    out: *mut *mut rushmem_module_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let w = world(w)?;
            let code = list(code.cast::<u8>(), bytes, "code")?;
            let name = if name.is_null() { "a binary" } else { text(name, "name")? };
            if out.is_null() {
                return Err(err!(INVALID_ARGUMENT, "out is null"));
            }
            write_out(out, w.kernels().load_binary(name, code)?.as_raw(), "out")
        }
    })
}

/// The device state of `rushmem/abi.h`, a `rushmem_device_state` of `bytes` bytes, which a program copies to
/// the global `rushmem_state` of kernels that others have loaded: those that nvcc has linked into the
/// program, or a `CUmodule` of another library's. Constant for the world's life, and good for this PE's
/// device alone. Those kernels have ended before the world does. Local.
///
/// `RUSHMEM_ERR_VERSION`: the caller's headers are those of another rushmem.
///
/// # Safety
/// `w` is a world's handle; `out` is null or valid for `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn rushmem_kernel_state(
    w: *mut rushmem_world_t,
    out: *mut c_void,
    bytes: usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let state = unsafe { world(w)? }.kernels().state().raw();
        if bytes != size_of_val(state) {
            return Err(err!(
                VERSION,
                "the device state has {} bytes, not {bytes}: built with device headers of another rushmem, build it again",
                size_of_val(state)
            ));
        }
        // SAFETY: per contract.
        unsafe { write_out(out.cast(), *state, "out") }
    })
}

/// Tells kernels that another loader has loaded who their PE is: copies the device state to the global
/// `rushmem_state` of a `CUmodule` in the primary context of this PE's GPU. `found` becomes 1, or 0 where the
/// module has no such global, and so calls nothing of rushmem. Before the first of its launches, and again
/// when another world takes this one's place; none of its kernels runs meanwhile, and they have ended before
/// the world does. Local.
///
/// `RUSHMEM_ERR_VERSION`: built with device headers of another rushmem. `RUSHMEM_ERR_UNSUPPORTED`: the device
/// is the CPU.
///
/// # Safety
/// `w` is a world's handle; `cu_module` is null or a loaded `CUmodule`; `found` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_kernel_state_tell(
    w: *mut rushmem_world_t,
    cu_module: *mut c_void,
    found: *mut i32,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let kernels = unsafe { world(w)? }.kernels();
        if cu_module.is_null() || found.is_null() {
            return Err(err!(
                INVALID_ARGUMENT,
                "{} is null",
                if found.is_null() { "found" } else { "the module" }
            ));
        }
        // SAFETY: per contract.
        unsafe { write_out(found, i32::from(kernels.tell(cu_module)?), "found") }
    })
}

/// Unloads a module; it and its kernels' handles are stale afterwards. `RUSHMEM_ERR_BUSY` while one of its
/// kernels is in flight. A world that ends unloads its modules.
///
/// # Safety
/// `m` is null or a module's handle.
#[no_mangle]
pub unsafe extern "C" fn rushmem_module_unload(m: *mut rushmem_module_t) -> i32 {
    guard(|| Handle::<LoadedModule>::from_raw(m.cast())?.unload())
}

/// The kernel (`__global__` function) of this name: qualified, or its last part where that is unique.
/// `RUSHMEM_ERR_LAUNCH` lists the kernels that there are.
///
/// # Safety
/// `m` is null or a module's handle; `name` is null or a C string; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_module_kernel(
    m: *mut rushmem_module_t,
    name: *const c_char,
    out: *mut *mut rushmem_kernel_t,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let module = Handle::<LoadedModule>::from_raw(m.cast())?.get()?;
            write_out(out, module.kernel(text(name, "name")?)?.as_raw(), "out")
        }
    })
}

/// The name of kernel number `index`, which lives as long as the module; `RUSHMEM_ERR_INVALID_ARGUMENT` past
/// the last.
///
/// # Safety
/// `m` is null or a module's handle; `name` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_module_kernel_names(
    m: *mut rushmem_module_t,
    index: usize,
    name: *mut *const c_char,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let module = Handle::<LoadedModule>::from_raw(m.cast())?.get()?;
        let names = module.names();
        let found = names
            .get(index)
            .ok_or_else(|| err!(INVALID_ARGUMENT, "kernel {index} of a module with {}", names.len()))?;
        // SAFETY: per contract.
        unsafe { write_out(name, found.as_ptr(), "name") }
    })
}

/// The number of a kernel's parameters in `*n`, and as many of their types as `capacity` allows in `types`
/// (may be null).
///
/// # Safety
/// `k` is null or a kernel's handle; `types` is null or has room for `capacity`; `n` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_kernel_params(
    k: *mut rushmem_kernel_t,
    types: *mut rushmem_arg_type_t,
    capacity: usize,
    n: *mut usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        let kernel = Handle::<LoadedKernel>::from_raw(k.cast())?.get()?;
        let params = kernel.params();
        if !types.is_null() {
            let count = capacity.min(params.len());
            // SAFETY: per contract, and no more than there are.
            unsafe { std::ptr::copy_nonoverlapping(params.as_ptr(), types, count) };
        }
        // SAFETY: per contract.
        unsafe { write_out(n, params.len(), "n") }
    })
}

/// The largest number of blocks of this shape that can all be resident, which is the largest grid that a
/// launch takes without `RUSHMEM_LAUNCH_IN_TURNS`; 0 where not even one block can.
///
/// # Safety
/// `k` is null or a kernel's handle; `block` is null or holds three numbers; `out` is null or valid.
#[no_mangle]
pub unsafe extern "C" fn rushmem_kernel_max_blocks(
    k: *mut rushmem_kernel_t,
    block: *const u32,
    shared_bytes: usize,
    out: *mut u64,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let kernel = Handle::<LoadedKernel>::from_raw(k.cast())?.get()?;
            let block = list(block, 3, "block")?;
            write_out(out, kernel.max_blocks([block[0], block[1], block[2]], shared_bytes)?, "out")
        }
    })
}

/// Launches a kernel: asynchronous, in order with what else is on its stream. Collective in the sense that
/// kernels which wait for each other must be launched by all PEs concerned; nothing is exchanged between PEs
/// here. The argument values are copied before it returns. `types` (may be null) says what the caller means
/// to pass, and is compared with the kernel's parameters.
///
/// `RUSHMEM_ERR_LAUNCH`: arguments that do not fit, or a grid whose blocks cannot all be resident (the text
/// names the largest that can), unless they may take turns. `rushmem_synchronize` reports what goes wrong
/// later.
///
/// # Safety
/// `k` is null or a kernel's handle; `cfg` is null or points at a `rushmem_launch_t`; `args` holds `n_args`
/// pointers to values of the parameters' types; `types` is null or holds `n_args` types. The kernel is
/// foreign code: it is sound with these arguments.
#[no_mangle]
pub unsafe extern "C" fn rushmem_launch(
    k: *mut rushmem_kernel_t,
    cfg: *const rushmem_launch_t,
    args: *const *const c_void,
    types: *const rushmem_arg_type_t,
    n_args: usize,
) -> i32 {
    guard(|| {
        // SAFETY: per contract.
        unsafe {
            let kernel = Handle::<LoadedKernel>::from_raw(k.cast())?.get()?;
            let cfg = cfg.as_ref().ok_or_else(|| err!(INVALID_ARGUMENT, "cfg is null"))?;
            let expected = size_of::<rushmem_launch_t>();
            if cfg.size as usize != expected
                || cfg.flags & !(RUSHMEM_LAUNCH_IN_TURNS | RUSHMEM_LAUNCH_EARLY) != 0
            {
                let (size, flags) = (cfg.size, cfg.flags);
                return Err(err!(
                    INVALID_ARGUMENT,
                    "rushmem_launch_t: size is {size} and flags {flags}, expected {expected} and bits \
                     RUSHMEM_LAUNCH_* (zero the struct and set size)"
                ));
            }
            let args = list(args, n_args, "args")?;
            let types = if types.is_null() { None } else { Some(list(types, n_args, "types")?) };
            kernel.launch(cfg, args, types)
        }
    })
}

/// Waits for all work on the world's streams: the default one, those of the pool and those of
/// `rushmem_stream_create`. A caller's own streams are waited for by `rushmem_stream_synchronize`. The first
/// failure since the last call: a PE died (`RUSHMEM_ERR_PEER_DEAD`), a wait passed its limit
/// (`RUSHMEM_ERR_TIMEOUT`), a PE that does not exist was addressed (`RUSHMEM_ERR_BAD_PE`), or a kernel
/// trapped, threw or can never end (`RUSHMEM_ERR_LAUNCH`). What is behind a failure on its stream does not
/// run.
///
/// # Safety
/// `w` is a world's handle.
#[no_mangle]
pub unsafe extern "C" fn rushmem_synchronize(w: *mut rushmem_world_t) -> i32 {
    // SAFETY: per contract.
    guard(|| unsafe { world(w) }?.synchronize())
}
