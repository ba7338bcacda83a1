//! Memory that a program makes by itself, by CUDA's driver calls, as PyTorch and others do: what the tests of
//! registration and of cudarc's views work on. It is given back on drop.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUmemAllocationHandleType as HandleType, CUresult};
use cudarc::driver::{result, CudaContext};
use rushmem::{Device, World};

/// Whether there is no GPU for the test of that name; says so.
pub fn skip(test: &str) -> bool {
    let why = if std::env::var("RUSHMEM_DEVICE").is_ok_and(|device| device == "cpu") {
        "RUSHMEM_DEVICE=cpu"
    } else if rushmem::gpus().unwrap().is_empty() {
        "no GPU"
    } else {
        return false;
    };
    eprintln!("SKIP {test}: {why}");
    true
}

fn ok(what: &str, result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS, "{what}");
}

/// The GPU of a PE, with its primary context, which is the thread's current one from then on.
pub struct Gpu {
    /// Retained as long as this lives.
    pub context: Arc<CudaContext>,
    /// As rushmem counts GPUs.
    pub index: usize,
}

impl Gpu {
    /// The GPU of this PE.
    pub fn of(world: &World) -> Gpu {
        let Device::Cuda(Some(index)) = world.device() else { panic!("{} has no GPU", world.my_pe()) };
        let index = index as usize;
        Gpu { context: CudaContext::new(index).unwrap(), index }
    }

    /// Copies to it, and waits.
    pub fn write<T>(&self, at: usize, data: &[T]) {
        self.context.bind_to_thread().unwrap();
        // SAFETY: the tests' own memory, of at least that length.
        unsafe { result::memcpy_htod_sync(at as u64, data) }.unwrap();
        self.finish();
    }

    /// So many elements of it.
    pub fn read<T: Copy + Default>(&self, at: usize, n: usize) -> Vec<T> {
        self.context.bind_to_thread().unwrap();
        let mut data = vec![T::default(); n];
        // SAFETY: the tests' own memory, of at least that length.
        unsafe { result::memcpy_dtoh_sync(&mut data, at as u64) }.unwrap();
        data
    }

    /// Bytes of its free memory.
    pub fn free(&self) -> usize {
        self.context.bind_to_thread().unwrap();
        result::mem_get_info().unwrap().0
    }

    fn finish(&self) {
        // SAFETY: the null stream of the context that is current.
        ok("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(std::ptr::null_mut()) });
    }

    fn properties(&self, kinds: HandleType) -> sys::CUmemAllocationProp {
        // SAFETY: plain data for which zeroes are values, but for the enumerations, which are set.
        let mut wanted: std::mem::MaybeUninit<sys::CUmemAllocationProp> = std::mem::MaybeUninit::zeroed();
        let at = wanted.as_mut_ptr();
        // SAFETY: the pointer is that of a zeroed value; zeroes are values of all fields but the
        // enumerations, which are set.
        unsafe {
            (*at).type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            (*at).requestedHandleTypes = kinds;
            (*at).location = self.location();
            wanted.assume_init()
        }
    }

    fn location(&self) -> sys::CUmemLocation {
        let type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        sys::CUmemLocation { type_, id: self.index as i32 }
    }

    /// In what VMM memory comes.
    pub fn granularity(&self) -> usize {
        self.context.bind_to_thread().unwrap();
        let properties = self.properties(HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
        let mut bytes = 0;
        // SAFETY: a valid description and a place for a number.
        ok("granularity", unsafe { sys::cuMemGetAllocationGranularity(&mut bytes, &properties, least) });
        bytes
    }
}

/// VMM memory: allocations mapped one after the other.
pub struct Vmm {
    context: Arc<CudaContext>,
    /// Its address.
    pub at: usize,
    /// Its size.
    pub bytes: usize,
    sizes: Vec<usize>,
}

impl Vmm {
    /// Of these sizes, multiples of the granularity; to be shared by descriptor, or not at all.
    pub fn new(gpu: &Gpu, sizes: &[usize], shared: bool) -> Vmm {
        gpu.context.bind_to_thread().unwrap();
        let kinds = if shared {
            HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        } else {
            HandleType::CU_MEM_HANDLE_TYPE_NONE
        };
        let (bytes, mut base, properties) = (sizes.iter().sum(), 0, gpu.properties(kinds));
        // SAFETY: new memory at new addresses, given back in `drop`.
        unsafe {
            ok("reserve", sys::cuMemAddressReserve(&mut base, bytes, 0, 0, 0));
            let mut at = base;
            for &size in sizes {
                let mut handle = 0;
                ok("create", sys::cuMemCreate(&mut handle, size, &properties, 0));
                ok("map", sys::cuMemMap(at, size, 0, handle, 0));
                ok("release", sys::cuMemRelease(handle));
                at += size as u64;
            }
            let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            let access = sys::CUmemAccessDesc { location: gpu.location(), flags };
            ok("access", sys::cuMemSetAccess(base, bytes, &access, 1));
        }
        let context = Arc::clone(&gpu.context);
        Vmm { context, at: base as usize, bytes, sizes: sizes.to_vec() }
    }
}

impl Drop for Vmm {
    fn drop(&mut self) {
        self.context.bind_to_thread().unwrap();
        let mut at = self.at as u64;
        // SAFETY: made in `new`; nobody uses it any more.
        unsafe {
            for &size in &self.sizes {
                ok("unmap", sys::cuMemUnmap(at, size));
                at += size as u64;
            }
            ok("free", sys::cuMemAddressFree(self.at as u64, self.bytes));
        }
    }
}

/// Which call makes plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// `cuMemAlloc`.
    Plain,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemAllocAsync`, from the GPU's pool.
    Pool,
    /// `cuMemHostAlloc`.
    Pinned,
}

/// Memory of one of those calls.
pub struct Memory {
    context: Arc<CudaContext>,
    maker: Maker,
    /// Its address.
    pub at: usize,
}

impl Memory {
    /// Of this size, at least.
    pub fn new(gpu: &Gpu, maker: Maker, bytes: usize) -> Memory {
        gpu.context.bind_to_thread().unwrap();
        let null = std::ptr::null_mut();
        // SAFETY: new memory, given back in `drop`.
        let at = unsafe {
            match maker {
                Maker::Plain => result::malloc_sync(bytes).unwrap(),
                Maker::Managed => {
                    let flags = sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL;
                    result::malloc_managed(bytes, flags).unwrap()
                }
                Maker::Pool => result::malloc_async(null, bytes).unwrap(),
                Maker::Pinned => result::malloc_host(bytes, 0).unwrap() as u64,
            }
        };
        gpu.finish();
        Memory { context: Arc::clone(&gpu.context), maker, at: at as usize }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.bind_to_thread().unwrap();
        // SAFETY: made in `new`; nobody uses it any more.
        unsafe {
            match self.maker {
                Maker::Pool => result::free_async(self.at as u64, std::ptr::null_mut()).unwrap(),
                Maker::Pinned => result::free_host(self.at as *mut c_void).unwrap(),
                Maker::Plain | Maker::Managed => result::free_sync(self.at as u64).unwrap(),
            }
        }
    }
}
