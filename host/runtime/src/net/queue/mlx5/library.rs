//! What is called of rdma-core's `libibverbs.so.1` and `libmlx5.so.1`, which are found at run time: nothing
//! links against them. Structures are read and written as their headers have them (`verbs.h`, `mlx5dv.h`);
//! the stand-in of the tests is compiled against these headers.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libloading::Library;

use crate::error::{err, Result};
use crate::verbs;

pub(super) type Pointer = *mut c_void;

/// `ibv_port_attr`: its first 48 bytes, of which the library writes no more for callers of the old function.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PortAttr {
    pub(super) state: u32,
    pub(super) max_mtu: u32,
    pub(super) active_mtu: u32,
    pub(super) gid_tbl_len: c_int,
    pub(super) port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    pub(super) bad_pkey_cntr: u32,
    pub(super) qkey_viol_cntr: u32,
    pub(super) pkey_tbl_len: u16,
    pub(super) lid: u16,
    pub(super) sm_lid: u16,
    pub(super) lmc: u8,
    pub(super) max_vl_num: u8,
    pub(super) sm_sl: u8,
    pub(super) subnet_timeout: u8,
    pub(super) init_type_reply: u8,
    pub(super) active_width: u8,
    pub(super) active_speed: u8,
    pub(super) phys_state: u8,
    pub(super) link_layer: u8,
    pub(super) flags: u8,
    /// Newer fields, should a library write them.
    pub(super) more: [u8; 16],
}

/// `ibv_device_attr`, of 232 bytes, and more should a library have more.
#[repr(C, align(8))]
pub(super) struct DeviceAttr {
    before: [u8; ATOMICS_AT],
    /// `atomic_cap`.
    pub(super) atomics: u32,
    after: [u8; 512 - ATOMICS_AT - 4],
}

/// Where `atomic_cap` is in it.
const ATOMICS_AT: usize = 164;

impl Default for DeviceAttr {
    fn default() -> Self {
        DeviceAttr { before: [0; ATOMICS_AT], atomics: 0, after: [0; 512 - ATOMICS_AT - 4] }
    }
}

/// `ibv_gid_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GidEntry {
    pub(super) gid: [u64; 2],
    pub(super) index: u32,
    pub(super) port: u32,
    pub(super) kind: u32,
    pub(super) interface: u32,
}

/// `ibv_mr`.
#[repr(C)]
pub(super) struct MemoryRegion {
    context: Pointer,
    pd: Pointer,
    address: Pointer,
    bytes: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `ibv_ah_attr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PathAttr {
    pub(super) dgid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `mlx5dv_context_attr`.
#[repr(C)]
pub(super) struct ContextAttr {
    pub(super) flags: u32,
    pub(super) comp_mask: u64,
}

/// `mlx5dv_obj`: for each of seven kinds of objects, what it is and where its facts go.
#[repr(C)]
pub(super) struct Objects(pub(super) [[Pointer; 2]; 7]);

/// Places in [`Objects`], which are the numbers of the bits that ask for them.
pub(super) const OBJECT_PATH: usize = 5;
pub(super) const OBJECT_PD: usize = 6;

/// `mlx5dv_pd`.
#[repr(C)]
#[derive(Default)]
pub(super) struct PdFacts {
    pub(super) pdn: u32,
    pub(super) comp_mask: u64,
}

/// `mlx5dv_ah`.
#[repr(C)]
pub(super) struct PathFacts {
    /// `mlx5_wqe_av`, 48 bytes.
    pub(super) vector: *const [u8; 48],
    pub(super) comp_mask: u64,
}

/// Where the peer's MAC is in `mlx5_wqe_av`.
pub(super) const VECTOR_MAC: usize = 20;

/// `mlx5dv_devx_uar`.
#[repr(C)]
pub(super) struct Uar {
    pub(super) register: *mut u64,
    base: Pointer,
    pub(super) page: u32,
    offset: i64,
    comp_mask: u64,
}

const VERBS: usize = 0;
const MLX5: usize = 1;
const FILES: [&str; 2] = ["libibverbs.so.1", "libmlx5.so.1"];

macro_rules! functions {
    ($($from:ident $symbol:ident($($given:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, as the headers declare them.
        pub(super) struct VerbsFunctions {
            $(pub(super) $symbol: unsafe extern "C" fn($($given),*) $(-> $result)?,)*
        }

        impl VerbsFunctions {
            fn find(files: &[Library; 2]) -> Result<VerbsFunctions> {
                Ok(VerbsFunctions { $($symbol: {
                    let name = concat!(stringify!($symbol), "\0");
                    // SAFETY: the signature of rdma-core's headers, which keep their ABI.
                    let found = unsafe { files[$from].get(name.as_bytes()) };
                    *found.map_err(|e| err!(
                        ENVIRONMENT,
                        "{} has no {}: {e}; kernels' queues need rdma-core 34 or newer, and this is an older one or none",
                        FILES[$from],
                        stringify!($symbol)
                    ))?
                },)* })
            }
        }
    };
}

functions! {
    VERBS ibv_get_device_list(*mut c_int) -> *mut Pointer;
    VERBS ibv_free_device_list(*mut Pointer);
    VERBS ibv_get_device_name(Pointer) -> *const c_char;
    VERBS ibv_close_device(Pointer) -> c_int;
    VERBS ibv_query_device(Pointer, *mut DeviceAttr) -> c_int;
    VERBS ibv_query_port(Pointer, u8, *mut PortAttr) -> c_int;
    VERBS _ibv_query_gid_ex(Pointer, u32, u32, *mut GidEntry, u32, usize) -> c_int;
    VERBS ibv_alloc_pd(Pointer) -> Pointer;
    VERBS ibv_dealloc_pd(Pointer) -> c_int;
    VERBS ibv_reg_mr_iova2(Pointer, Pointer, usize, u64, u32) -> *mut MemoryRegion;
    VERBS ibv_reg_dmabuf_mr(Pointer, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;
    VERBS ibv_dereg_mr(*mut MemoryRegion) -> c_int;
    VERBS ibv_create_ah(Pointer, *mut PathAttr) -> Pointer;
    VERBS ibv_destroy_ah(Pointer) -> c_int;
    MLX5 mlx5dv_is_supported(Pointer) -> bool;
    MLX5 mlx5dv_open_device(Pointer, *mut ContextAttr) -> Pointer;
    MLX5 mlx5dv_init_obj(*mut Objects, u64) -> c_int;
    MLX5 mlx5dv_devx_query_eqn(Pointer, u32, *mut u32) -> c_int;
    MLX5 mlx5dv_devx_alloc_uar(Pointer, u32) -> *mut Uar;
    MLX5 mlx5dv_devx_free_uar(*mut Uar);
    MLX5 mlx5dv_devx_umem_reg(Pointer, Pointer, usize, u32) -> *mut u32;
    MLX5 mlx5dv_devx_umem_dereg(*mut u32) -> c_int;
    MLX5 mlx5dv_devx_obj_create(Pointer, *const u8, usize, *mut u8, usize) -> Pointer;
    MLX5 mlx5dv_devx_obj_modify(Pointer, *const u8, usize, *mut u8, usize) -> c_int;
    MLX5 mlx5dv_devx_obj_destroy(Pointer) -> c_int;
}

impl VerbsFunctions {
    /// Those of the libraries in `folder`, or where the system finds them. They stay loaded: rdma-core's
    /// drivers register with `libibverbs` for good.
    pub(super) fn load(folder: Option<&Path>) -> Result<&'static VerbsFunctions> {
        static LOADED: Mutex<Vec<(Option<std::path::PathBuf>, &'static VerbsFunctions)>> =
            Mutex::new(Vec::new());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = loaded.iter().find(|(of, _)| of.as_deref() == folder) {
            return Ok(known);
        }
        let open = |name| verbs::open(folder, name).map_err(|why| err!(ENVIRONMENT, "{why}"));
        let files = [open(FILES[VERBS])?, open(FILES[MLX5])?];
        let functions: &'static VerbsFunctions = Box::leak(Box::new(VerbsFunctions::find(&files)?));
        std::mem::forget(files);
        loaded.push((folder.map(Path::to_owned), functions));
        Ok(functions)
    }

    /// The name of a device of the list.
    ///
    /// # Safety
    /// It is one.
    pub(super) unsafe fn name(&self, device: Pointer) -> String {
        // SAFETY: the caller's device has a name as long as the list lives.
        unsafe { CStr::from_ptr((self.ibv_get_device_name)(device)) }.to_string_lossy().into_owned()
    }
}
