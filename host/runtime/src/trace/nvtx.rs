//! Spans as ranges of NVTX, for profilers (Nsight Systems and what else takes them): each thread's in the
//! domain `rushmem`, with what is moved as the payload and the peer as the category.
//!
//! NVTX has no library. A profiler names one of its own in `NVTX_INJECTION64_PATH`. What makes ranges loads
//! it and calls `InitializeInjectionNvtx2` with a function that hands out tables of slots, into which the
//! profiler writes the functions that it wants called (as the headers of NVTX 3 define it). A slot may change
//! later, and one that is empty is a call that nobody wants. Static injection, by a symbol of the
//! executable's, is not looked for.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, OnceLock};

use libloading::Library;

use super::lock;

/// The variable by which profilers name their library.
const INJECTION: &str = "NVTX_INJECTION64_PATH";
/// Whose API this is: `NVTX_VERSION`.
const VERSION: u16 = 3;
/// The longest name of a range, with its zero.
const NAME: usize = 128;

/// Tables of slots, by `NvtxCallbackModule`: as many as that module has functions, and one, as theirs count
/// from 1 on.
const SIZES: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE2: usize = 5;
/// Of `NvtxCallbackIdCore2`.
const RANGE_PUSH: usize = 4;
const RANGE_POP: usize = 5;
const NAME_CATEGORY: usize = 8;
const DOMAIN_CREATE: usize = 12;

type Slot = AtomicPtr<c_void>;
/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    table: extern "C" fn(u32, *mut *const *const Slot, *mut u32) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    told: extern "C" fn(u32),
}

/// `nvtxEventAttributes_v2`.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: usize,
}

/// `NVTX_PAYLOAD_TYPE_UNSIGNED_INT64` and `NVTX_MESSAGE_TYPE_ASCII`.
const PAYLOAD_U64: i32 = 1;
const MESSAGE_ASCII: i32 = 1;

type Push = unsafe extern "C" fn(*mut c_void, *const EventAttributes) -> c_int;
type Pop = unsafe extern "C" fn(*mut c_void) -> c_int;
type NameCategory = unsafe extern "C" fn(*mut c_void, u32, *const c_char);
type CreateDomain = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;

const ROOM: usize = 17;
static SLOTS: [[Slot; ROOM]; SIZES.len()] = [const { [const { Slot::new(null_mut()) }; ROOM] }; SIZES.len()];
/// Where the slots are, as profilers read it.
static TABLES: OnceLock<[[usize; ROOM]; SIZES.len()]> = OnceLock::new();

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), table: module_table };
static VERSION_INFO: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION as u32, reserved: 0, told: version_told };

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => null_mut(),
    }
}

extern "C" fn version_told(_: u32) {}

extern "C" fn module_table(module: u32, table: *mut *const *const Slot, size: *mut u32) -> c_int {
    let module = module as usize;
    let Some(n) = SIZES.get(module).filter(|n| **n > 0) else { return 0 };
    let tables = TABLES.get_or_init(|| {
        std::array::from_fn(|module| {
            std::array::from_fn(|id| match id {
                0 => 0,
                _ if id >= SIZES[module] => 0,
                _ => &raw const SLOTS[module][id] as usize,
            })
        })
    });
    // SAFETY: each null, or where the profiler wants the answer; the table lives for ever.
    unsafe {
        if let Some(table) = table.as_mut() {
            *table = tables[module].as_ptr().cast();
        }
        if let Some(size) = size.as_mut() {
            *size = *n as u32;
        }
    }
    1
}

fn slot(id: usize) -> Option<*mut c_void> {
    let function = SLOTS[CORE2][id].load(Ordering::Acquire);
    (!function.is_null()).then_some(function)
}

/// A profiler that has come.
pub(crate) struct NvtxTool {
    /// The domain, a handle of the profiler's.
    domain: AtomicPtr<c_void>,
    /// PEs whose category has a name.
    named: Mutex<Vec<bool>>,
}

/// This process's profiler, looked for by the first call. One that cannot be loaded is a warning.
pub(crate) fn tool() -> Option<&'static NvtxTool> {
    static TOOL: OnceLock<Option<NvtxTool>> = OnceLock::new();
    let found = TOOL.get_or_init(|| {
        let path = std::env::var_os(INJECTION).filter(|path| !path.is_empty()).map(PathBuf::from)?;
        match attach(&path) {
            Ok(tool) => {
                log::debug!("{INJECTION}: {} gets ranges of host calls", path.display());
                Some(tool)
            }
            Err(why) => {
                log::warn!("{INJECTION}: no profiler gets ranges of host calls: {}: {why}", path.display());
                None
            }
        }
    });
    found.as_ref()
}

fn attach(path: &Path) -> Result<NvtxTool, String> {
    // SAFETY: the user names this library so that it is loaded, and its initialisers run.
    let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
    // SAFETY: a function of this type, as NVTX defines it.
    let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") };
    let initialize = *initialize.map_err(|_| "it has no function InitializeInjectionNvtx2".to_owned())?;
    // SAFETY: as NVTX defines it; the tables live for ever.
    if unsafe { initialize(export_table) } == 0 {
        return Err("its InitializeInjectionNvtx2 refuses".to_owned());
    }
    // It is called until the process ends.
    std::mem::forget(library);
    let domain = slot(DOMAIN_CREATE).map_or(null_mut(), |create| {
        // SAFETY: the profiler's function of this slot has this type.
        unsafe { transmute::<*mut c_void, CreateDomain>(create)(c"rushmem".as_ptr()) }
    });
    Ok(NvtxTool { domain: AtomicPtr::new(domain), named: Mutex::default() })
}

impl NvtxTool {
    fn domain(&self) -> *mut c_void {
        self.domain.load(Ordering::Relaxed)
    }

    /// Begins a range on this thread; the thread's ranges end in the opposite order.
    pub(crate) fn range(
        &'static self,
        name: &str,
        peer: Option<i32>,
        bytes: Option<u64>,
    ) -> Option<NvtxRange> {
        // A profiler that takes no ends would see nothing but beginnings.
        let (push, _) = (slot(RANGE_PUSH)?, slot(RANGE_POP)?);
        let mut text = [0_u8; NAME];
        let end = (0..=name.len().min(NAME - 1)).rev().find(|i| name.is_char_boundary(*i)).unwrap_or(0);
        text[..end].copy_from_slice(&name.as_bytes()[..end]);
        let attributes = EventAttributes {
            version: VERSION,
            size: size_of::<EventAttributes>() as u16,
            category: peer.map_or(0, |pe| self.category(pe)),
            payload_type: if bytes.is_some() { PAYLOAD_U64 } else { 0 },
            payload: bytes.unwrap_or(0),
            message_type: MESSAGE_ASCII,
            message: text.as_ptr() as usize,
            ..EventAttributes::default()
        };
        // SAFETY: the profiler's function of this slot has this type; it copies what it keeps.
        unsafe { transmute::<*mut c_void, Push>(push)(self.domain(), &attributes) };
        Some(NvtxRange { tool: self, _of_this_thread: std::marker::PhantomData })
    }

    /// The category of ranges about PE `pe`; 0 is none.
    fn category(&self, pe: i32) -> u32 {
        let category = pe as u32 + 1;
        let mut named = lock(&self.named);
        if named.len() <= pe as usize {
            named.resize(pe as usize + 1, false);
        }
        if !std::mem::replace(&mut named[pe as usize], true) {
            if let (Some(name), Ok(text)) = (slot(NAME_CATEGORY), std::ffi::CString::new(format!("PE {pe}")))
            {
                // SAFETY: the profiler's function of this slot has this type; it copies the text.
                unsafe {
                    transmute::<*mut c_void, NameCategory>(name)(self.domain(), category, text.as_ptr());
                };
            }
        }
        category
    }
}

/// A range that has begun; dropping it ends it, on the same thread.
pub(crate) struct NvtxRange {
    tool: &'static NvtxTool,
    _of_this_thread: std::marker::PhantomData<*mut ()>,
}

impl Drop for NvtxRange {
    fn drop(&mut self) {
        if let Some(pop) = slot(RANGE_POP) {
            // SAFETY: the profiler's function of this slot has this type.
            unsafe { transmute::<*mut c_void, Pop>(pop)(self.tool.domain()) };
        }
    }
}
