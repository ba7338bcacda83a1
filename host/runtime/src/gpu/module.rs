//! Loaded machine code: its kernels with their parameters, and the device state that it carries.
//!
//! A module is loaded into one context by itself, so that each load has its own `rushmem_state`: two PEs on
//! one GPU, or two worlds of one process, load the same code twice. All kernels are loaded at once, whatever
//! CUDA_MODULE_LOADING says: a first launch that loads may wait for the kernels that run, and these may be
//! waiting for that launch.

use std::ffi::CStr;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUfunction, CUfunction_attribute, CUmodule, CUresult};

use super::driver::{cu, failure, ignore};
use super::sharing::SharedContext;
use super::stream::{Priority, Stream};
use super::{names, signatures, stacks, Cuda};
use crate::error::{err, Error, Result};
use rushmem_abi::c::rushmem_arg_type_t;
use rushmem_abi::device::{RawState, TraceRing, RUSHMEM_DEVICE_ABI_VERSION};

/// Machine code in a context.
#[derive(Debug)]
pub(crate) struct Module {
    cuda: Arc<Cuda>,
    /// There until the module is dropped.
    code: Option<LoadedCode>,
    /// Where other PEs use the context, too.
    shared: Option<Arc<SharedContext>>,
    name: String,
    kernels: Vec<KernelEntry>,
    /// Where `rushmem_state` is, if the code has one.
    state: Option<usize>,
    /// Where `rushmem_gpu_trace` is, if it was compiled for a traced run.
    trace: Option<usize>,
}

/// What the driver has of a module, unloaded when it is dropped.
#[derive(Debug)]
pub(super) struct LoadedCode {
    cuda: Arc<Cuda>,
    raw: CUmodule,
}

// SAFETY: any thread may unload a module.
unsafe impl Send for LoadedCode {}

impl Drop for LoadedCode {
    fn drop(&mut self) {
        let Ok(_current) = self.cuda.current() else { return };
        // SAFETY: loaded in `Module::load`; kernels hold an `Arc` of the module, and their launches have been
        // waited for.
        ignore("cuModuleUnload", unsafe { sys::cuModuleUnload(self.raw) });
    }
}

// SAFETY: modules and their functions may be used by any thread.
unsafe impl Send for Module {}
// SAFETY: nothing in here changes, and the driver locks.
unsafe impl Sync for Module {}

/// A kernel of a module.
#[derive(Debug)]
pub(super) struct KernelEntry {
    pub(super) raw: CUfunction,
    /// What people call it.
    pub(super) name: String,
    /// What the binary calls it.
    symbol: String,
    /// Offset in the argument buffer, and size.
    pub(super) layout: Vec<(usize, usize)>,
    pub(super) params: Vec<rushmem_arg_type_t>,
    /// Whether it can wait for the kernel before it on its stream by itself: PTX has `griddepcontrol.wait`
    /// from the architecture 9.0 on (PTX ISA), and what was compiled for an older one has nothing in its
    /// place.
    pub(super) waits_by_itself: bool,
    /// Bytes of stack that a thread needs.
    stack: usize,
}

/// Whether PTX of that virtual architecture has `griddepcontrol`; the driver says 0 where it does not know.
fn has_grid_dependencies(ptx: i32) -> bool {
    ptx == 0 || ptx >= 90
}

/// A kernel, holding its module.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(super) module: Arc<Module>,
    pub(super) index: usize,
}

impl Module {
    /// Loads a cubin, a fatbin or PTX; `name` is for texts, `instances` are names (of template instances,
    /// say) that mean a symbol of the code. Where other PEs use the context, it is unloaded when `shared`
    /// lets it.
    pub(crate) fn load(
        cuda: &Arc<Cuda>,
        shared: Option<&Arc<SharedContext>>,
        name: &str,
        code: &[u8],
        instances: &[(String, String)],
    ) -> Result<Arc<Module>> {
        let code = whole(code).map_err(|e| e.context(name))?;
        let _current = cuda.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: an image that is as long as it says, and ends with zeros; writes the module, owned here at
        // once.
        match unsafe { sys::cuModuleLoadData(&mut raw, code.as_ptr().cast()) } {
            CUresult::CUDA_SUCCESS => {}
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {
                let (major, minor) = cuda.facts().capability;
                return Err(err!(
                    UNSUPPORTED,
                    "{name} has no code for {cuda}: build it with -gencode arch=compute_{major}{minor},code=sm_{major}{minor}"
                ));
            }
            other => return Err(failure("cuModuleLoadData", other).context(name)),
        }
        let mut module = Module {
            cuda: Arc::clone(cuda),
            code: Some(LoadedCode { cuda: Arc::clone(cuda), raw }),
            shared: shared.cloned(),
            name: name.to_owned(),
            kernels: Vec::new(),
            state: None,
            trace: None,
        };
        module.kernels = kernels(raw, instances).map_err(|e| e.context(name))?;
        let largest = module.kernels.iter().map(|kernel| kernel.stack).max().unwrap_or(0);
        stacks::grow(largest).map_err(|e| e.context(name))?;
        module.state = state(cuda, raw).map_err(|e| e.context(name))?;
        // One of another layout is another rushmem's, and stays empty: nothing is recorded.
        let trace = variable(raw, c"rushmem_gpu_trace").map_err(|e| e.context(name))?;
        module.trace = trace.filter(|(_, bytes)| *bytes == size_of::<TraceRing>()).map(|(at, _)| at);
        Ok(Arc::new(module))
    }

    /// The GPU.
    pub(crate) fn cuda(&self) -> &Arc<Cuda> {
        &self.cuda
    }

    /// What it is called in texts.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The kernels' names, as people write them.
    pub(crate) fn kernel_names(&self) -> impl Iterator<Item = &str> {
        self.kernels.iter().map(|kernel| kernel.name.as_str())
    }

    /// The kernel of that name or symbol, or the only one of that name in any namespace.
    pub(crate) fn kernel(self: &Arc<Self>, name: &str) -> Option<Kernel> {
        let wanted = squeezed(name.trim_start_matches("::"));
        let inner = format!("::{wanted}");
        let position = |fits: &dyn Fn(&KernelEntry) -> bool| {
            let mut fitting = self.kernels.iter().enumerate().filter(|(_, kernel)| fits(kernel));
            fitting.next().filter(|_| fitting.next().is_none()).map(|(index, _)| index)
        };
        let index = position(&|kernel| kernel.symbol == name)
            .or_else(|| position(&|kernel| squeezed(&kernel.name) == wanted))
            .or_else(|| position(&|kernel| squeezed(&kernel.name).ends_with(&inner)))?;
        Some(Kernel { module: Arc::clone(self), index })
    }

    /// Whether the code uses rushmem.
    #[cfg(test)]
    pub(crate) fn has_state(&self) -> bool {
        self.state.is_some()
    }

    /// Tells the code who and where its PE is. Before its first launch; waits on `stream` until it is there.
    pub(crate) fn upload(&self, state: &RawState, stream: &Stream) -> Result<()> {
        let Some(at) = self.state else { return Ok(()) };
        // SAFETY: the code's state, which `load` has looked at.
        unsafe { send(at, state, stream) }
            .map_err(|e| e.context(format_args!("telling {} its PE", self.name)))
    }

    /// Whether its kernels write their calls where [`Module::upload_trace`] says.
    pub(crate) fn has_trace(&self) -> bool {
        self.trace.is_some()
    }

    /// Tells the code where its kernels write their calls. Before its first launch; waits on `stream` until
    /// it is there.
    pub(crate) fn upload_trace(&self, ring: &TraceRing, stream: &Stream) -> Result<()> {
        let Some(at) = self.trace else { return Ok(()) };
        // SAFETY: the code's variable, of which `load` has seen that it is as long.
        unsafe { send(at, ring, stream) }
            .map_err(|e| e.context(format_args!("telling {} where its calls are written", self.name)))
    }

    pub(super) fn entry(&self, index: usize) -> &KernelEntry {
        &self.kernels[index]
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let (Some(shared), Some(code)) = (&self.shared, self.code.take()) {
            shared.retire(code);
        }
    }
}

fn squeezed(name: &str) -> String {
    name.chars().filter(|c| *c != ' ').collect()
}

/// A copy of an image, with zeros behind it because PTX is a C string. The driver takes no length, so the
/// image's own must be right.
fn whole(code: &[u8]) -> Result<Vec<u8>> {
    let u16_at = |at: usize| code.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]) as u64);
    let u64_at = |at: usize| {
        code.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("a slice of eight bytes")))
    };
    let needs = if code.starts_with(b"\x7fELF") {
        // The section headers come last (ELF-64: e_shoff, e_shentsize, e_shnum).
        let end = || u64_at(0x28)?.checked_add(u16_at(0x3a)?.checked_mul(u16_at(0x3c)?)?);
        end().unwrap_or(u64::MAX)
    } else if code.starts_with(&0xba55_ed50_u32.to_le_bytes()) {
        let end = || u64_at(8)?.checked_add(u16_at(6)?);
        end().unwrap_or(u64::MAX)
    } else if std::str::from_utf8(code).is_ok_and(|text| text.contains(".version")) {
        0
    } else {
        return Err(err!(COMPILE, "neither a cubin, nor a fatbin, nor PTX"));
    };
    if needs > code.len() as u64 {
        return Err(err!(COMPILE, "cut off: {} bytes of at least {needs}", code.len()));
    }
    let mut image = code.to_vec();
    image.resize(code.len() + 64, 0);
    Ok(image)
}

fn kernels(module: CUmodule, instances: &[(String, String)]) -> Result<Vec<KernelEntry>> {
    let mut count = 0;
    // SAFETY: a loaded module; writes a number.
    unsafe { cu!(cuModuleGetFunctionCount(&mut count, module)) }?;
    let mut functions: Vec<CUfunction> = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: the list is as long as said.
    unsafe { cu!(cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module)) }?;
    let mut entries = functions.into_iter().map(entry).collect::<Result<Vec<_>>>()?;
    for kernel in &mut entries {
        if let Some((asked, _)) = instances.iter().find(|(_, symbol)| *symbol == kernel.symbol) {
            kernel.name = asked.trim_start_matches("::").to_owned();
        }
        let signature =
            instances.iter().find(|(asked, _)| signatures::kernel_of(asked) == Some(&kernel.symbol));
        if let Some((_, types)) = signature {
            let sizes: Vec<usize> = kernel.layout.iter().map(|(_, size)| *size).collect();
            kernel.params = names::params_of_type(types, &sizes);
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn entry(raw: CUfunction) -> Result<KernelEntry> {
    let mut name = std::ptr::null();
    // SAFETY: a function of a loaded module; writes a pointer to a string that lives as long as the module.
    unsafe { cu!(cuFuncGetName(&mut name, raw)) }?;
    // SAFETY: a terminated string that lives as long as the module.
    let symbol = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    // SAFETY: a function of a loaded module.
    unsafe { cu!(cuFuncLoad(raw)) }?;
    let mut layout = Vec::new();
    loop {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: a function of a loaded module; writes two numbers.
        match unsafe { sys::cuFuncGetParamInfo(raw, layout.len(), &mut offset, &mut size) } {
            CUresult::CUDA_SUCCESS => layout.push((offset, size)),
            // Past the last one.
            CUresult::CUDA_ERROR_INVALID_VALUE => break,
            other => return Err(failure("cuFuncGetParamInfo", other)),
        }
    }
    let sizes: Vec<usize> = layout.iter().map(|(_, size)| *size).collect();
    let params = names::params(&symbol, &sizes);
    let mut ptx = 0;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PTX_VERSION;
    // SAFETY: a function of a loaded module; writes one int.
    unsafe { cu!(cuFuncGetAttribute(&mut ptx, attribute, raw)) }?;
    let waits_by_itself = has_grid_dependencies(ptx);
    let (name, stack) = (names::readable(&symbol), stacks::stack_of(raw)?);
    Ok(KernelEntry { raw, name, symbol, layout, params, waits_by_itself, stack })
}

/// Tells code that others have loaded who and where its PE is; whether the code asks for that.
///
/// # Safety
/// `module` is a `CUmodule` of the GPU's primary context, and none of its kernels runs.
pub(crate) unsafe fn tell(
    cuda: &Arc<Cuda>,
    module: *mut std::ffi::c_void,
    told: &RawState,
    stream: &Stream,
) -> Result<bool> {
    let _current = cuda.current()?;
    let Some(at) = state(cuda, module.cast())? else { return Ok(false) };
    // SAFETY: `state` has found it, as long as ours.
    unsafe { send(at, told, stream) }?;
    Ok(true)
}

/// Copies a value to a module's variable, and waits until it is there.
///
/// # Safety
/// At `at` is a variable of that size.
unsafe fn send<T: Copy>(at: usize, told: &T, stream: &Stream) -> Result<()> {
    let from = std::ptr::from_ref(told) as usize;
    // SAFETY: the variable is as long as the value, which lives until the copy is done, below.
    unsafe { stream.copy(at, from, size_of::<T>()) }.and_then(|()| stream.finish())
}

/// The address and the size of a variable of the code's.
fn variable(module: CUmodule, name: &CStr) -> Result<Option<(usize, usize)>> {
    let (mut at, mut bytes) = (0, 0);
    // SAFETY: a loaded module and a C string; writes two numbers.
    match unsafe { sys::cuModuleGetGlobal_v2(&mut at, &mut bytes, module, name.as_ptr()) } {
        CUresult::CUDA_SUCCESS => Ok(Some((at as usize, bytes))),
        CUresult::CUDA_ERROR_NOT_FOUND => Ok(None),
        other => Err(failure("cuModuleGetGlobal", other)),
    }
}

/// The address of the code's `rushmem_state`, whose layout must be ours.
fn state(cuda: &Arc<Cuda>, module: CUmodule) -> Result<Option<usize>> {
    let Some((at, bytes)) = variable(module, c"rushmem_state")? else { return Ok(None) };
    let mut head = [0u32; 2];
    if bytes >= size_of_val(&head) {
        // On a stream of its own: the default one may wait for kernels that are not ours to wait for.
        let stream = Stream::new(cuda, Priority::High)?;
        // SAFETY: the symbol is at least that long, and the copy is waited for.
        unsafe { stream.copy(head.as_mut_ptr() as usize, at, size_of_val(&head)) }?;
        stream.finish()?;
    }
    check_state(bytes, head)?;
    Ok(Some(at))
}

/// The struct's size, and the version and size that the code's headers wrote into it, 0 where they wrote
/// none.
fn check_state(bytes: usize, [version, said]: [u32; 2]) -> Result<()> {
    let ours = size_of::<RawState>();
    if bytes == ours && [0, RUSHMEM_DEVICE_ABI_VERSION].contains(&version) && [0, ours as u32].contains(&said)
    {
        return Ok(());
    }
    Err(Error::new(
        crate::error::code::VERSION,
        format!(
            "built with device headers of another rushmem (device state version {version}, {bytes} bytes; this runtime has \
             version {RUSHMEM_DEVICE_ABI_VERSION}, {ours} bytes): build it again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::code;

    #[test]
    fn only_code_of_architecture_9_on_waits_by_itself() {
        for (ptx, waits) in [(0, true), (70, false), (89, false), (90, true), (100, true), (121, true)] {
            assert_eq!(has_grid_dependencies(ptx), waits, "{ptx}");
        }
    }

    #[test]
    fn images_that_are_cut_off_are_refused() {
        assert_eq!(whole(b"").unwrap_err().code, code::COMPILE);
        assert_eq!(whole(b"hello").unwrap_err().code, code::COMPILE);
        assert!(whole(b".version 8.0\n.target sm_90\n").unwrap().ends_with(&[0; 64]));
        let mut elf = vec![0u8; 200];
        elf[..4].copy_from_slice(b"\x7fELF");
        (elf[0x28], elf[0x3a], elf[0x3c]) = (72, 64, 2);
        assert!(whole(&elf).is_ok());
        for len in 0..200 {
            assert!(whole(&elf[..len]).is_err(), "{len} bytes");
        }
        let mut fatbin = 0xba55_ed50_u32.to_le_bytes().to_vec();
        fatbin.extend_from_slice(&[1, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0]);
        fatbin.resize(48, 0);
        assert!(whole(&fatbin).is_ok());
        for len in 0..48 {
            assert!(whole(&fatbin[..len]).is_err(), "{len} bytes");
        }
        fatbin[8..16].fill(0xff);
        assert!(whole(&fatbin).is_err());
    }

    #[test]
    fn a_state_of_another_version_is_refused() {
        let ours = size_of::<RawState>();
        check_state(ours, [0, 0]).unwrap();
        check_state(ours, [RUSHMEM_DEVICE_ABI_VERSION, ours as u32]).unwrap();
        for (bytes, head) in [
            (ours - 8, [0, 0]),
            (ours, [RUSHMEM_DEVICE_ABI_VERSION + 1, ours as u32]),
            (ours, [RUSHMEM_DEVICE_ABI_VERSION, 8]),
            (0, [0, 0]),
        ] {
            assert_eq!(check_state(bytes, head).unwrap_err().code, code::VERSION);
        }
    }
}
