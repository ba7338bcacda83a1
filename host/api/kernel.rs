//! Kernels: CUDA C++ source, loaded into a world and launched collectively.
//!
//! The same source runs on whatever device the world has: a GPU (by NVRTC), or the CPU (by the system's C++
//! compiler; each block an OS thread, each CUDA thread a coroutine). Loaded modules, like symmetric memory,
//! live until they are unloaded or the world ends: unloading may have to wait for work in flight, and waiting
//! is never hidden in a drop.

use std::ffi::{c_void, CString};
use std::marker::PhantomData;

use rushmem_abi::c::*;

use crate::args::{ArgType, KernelArgs};
use crate::runtime::copy_text;
use crate::stream::Stream;
use crate::{Error, ErrorCode, Result, Source, World};

impl World {
    /// Compiles and loads a kernel source. Compiled objects are cached by content
    /// (`RUSHMEM_CACHE_DIR`), and the PEs of a host compile the same source once. Local.
    ///
    /// # Errors
    /// [`ErrorCode::Compile`] with the compiler's messages, by the source's own line numbers.
    pub fn load(&self, source: impl Into<Source>) -> Result<Module<'_>> {
        let source = source.into();
        let name = c_text("a source's name", &source.name)?;
        let options = source.options.iter().map(|o| c_text("an option", o)).collect::<Result<Vec<_>>>()?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let (text, mut raw) = (source.text.as_bytes(), std::ptr::null_mut());
        // SAFETY: a live handle; the texts outlive the call and the lengths are theirs; a place for the
        // answer.
        self.check(unsafe {
            (self.runtime().module_load)(
                self.as_raw(),
                text.as_ptr().cast(),
                text.len(),
                name.as_ptr(),
                options.as_ptr(),
                options.len(),
                &mut raw,
            )
        })?;
        Ok(Module { world: self, raw })
    }

    /// Loads machine code for GPUs: a cubin, a fatbin or PTX made by nvcc or nvJitLink, with rushmem's device
    /// library linked in or its headers alone compiled in. `name` is for messages. Local.
    ///
    /// # Errors
    /// [`ErrorCode::Unsupported`] where the device is the CPU, or the code is for other GPUs;
    /// [`ErrorCode::Version`] where it was built with another rushmem's headers.
    pub fn load_module(&self, name: &str, code: &[u8]) -> Result<Module<'_>> {
        let (c_name, mut raw) = (c_text("a module's name", name)?, std::ptr::null_mut());
        // SAFETY: a live handle; the code and the name outlive the call; a place for the answer.
        self.check(unsafe {
            (self.runtime().module_load_binary)(
                self.as_raw(),
                code.as_ptr().cast(),
                code.len(),
                c_name.as_ptr(),
                &mut raw,
            )
        })?;
        Ok(Module { world: self, raw })
    }

    /// Waits for all work on the world's streams: the default one, those of the pool and those of
    /// [`World::stream`], those too that were destroyed; not for the caller's own. Local.
    ///
    /// # Errors
    /// The first failure since the last call: a PE died while a kernel or an operation waited, a wait's time
    /// limit passed, a kernel asked for a PE that does not exist, it trapped. What is behind a failure on its
    /// stream does not run.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: a live handle.
        self.check(unsafe { (self.runtime().synchronize)(self.as_raw()) })
    }
}

fn c_text(what: &str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| Error::new(ErrorCode::InvalidArgument, format!("{what} contains a NUL byte: {text:?}")))
}

/// A loaded kernel source.
pub struct Module<'w> {
    world: &'w World,
    raw: *mut rushmem_module_t,
}

// SAFETY: the C ABI takes a module from any thread.
unsafe impl Send for Module<'_> {}
// SAFETY: the C ABI takes a module from several threads at once.
unsafe impl Sync for Module<'_> {}

impl Module<'_> {
    /// The kernel (`__global__` function) of this name: qualified, or its last part where that is unique.
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] lists the kernels that there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel<'_>> {
        let c_name = c_text("a kernel's name", name)?;
        let mut raw = std::ptr::null_mut();
        let find = self.world.runtime().module_kernel;
        // SAFETY: a live handle, a C string through the call, a place for the answer.
        self.world.check(unsafe { find(self.raw, c_name.as_ptr(), &mut raw) })?;
        Ok(Kernel { world: self.world, raw, module: PhantomData })
    }

    /// The names of all kernels.
    pub fn kernel_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let mut name = std::ptr::null();
            // SAFETY: a live handle and a place for the answer.
            let code =
                unsafe { (self.world.runtime().module_kernel_names)(self.raw, names.len(), &mut name) };
            if code != RUSHMEM_OK {
                return names;
            }
            // SAFETY: a string of the module's, which lives.
            names.push(unsafe { copy_text(name) });
        }
    }

    /// Unloads the module. Local.
    ///
    /// # Errors
    /// [`ErrorCode::Busy`] while one of its kernels runs ([`World::synchronize`] first); the module then
    /// stays until the world ends.
    pub fn unload(self) -> Result<()> {
        // SAFETY: a live handle, unloaded once: `self` is consumed, and every kernel borrowed it.
        self.world.check(unsafe { (self.world.runtime().module_unload)(self.raw) })
    }
}

/// A kernel of a module.
pub struct Kernel<'m> {
    world: &'m World,
    raw: *mut rushmem_kernel_t,
    module: PhantomData<&'m Module<'m>>,
}

// SAFETY: the C ABI takes a kernel from any thread.
unsafe impl Send for Kernel<'_> {}
// SAFETY: the C ABI takes a kernel from several threads at once.
unsafe impl Sync for Kernel<'_> {}

impl Kernel<'_> {
    /// Launches the kernel on the world's default stream. Asynchronous: what is on one stream runs in order,
    /// and the arguments are copied before this returns. All blocks are resident at once, so they may wait
    /// for each other, and for those of other PEs: a kernel that does must be launched on all PEs concerned.
    /// Where they need not, [`Launch::in_turns`] takes grids of any size.
    ///
    /// ```no_run
    /// # fn main() -> rushmem::Result<()> {
    /// use rushmem::{Launch, World};
    /// let world = World::init()?;
    /// let data = world.alloc::<f32>(1024)?;
    /// let module = world.load("#include <rushmem/rushmem.cuh>\n\
    ///     extern \"C\" __global__ void scale(float *x, float by) { x[threadIdx.x] *= by; }")?;
    /// let kernel = module.kernel("scale")?;
    /// // SAFETY: `scale` touches this PE's first 256 floats, and nobody else does until synchronize.
    /// unsafe { kernel.launch(Launch::new(1, 256), (&data, 0.5f32)) }?;
    /// world.synchronize()?;
    /// # world.finalize() }
    /// ```
    ///
    /// # Errors
    /// [`ErrorCode::Launch`] when the arguments' number or types do not fit the kernel's parameters (as far
    /// as those are known), or when the blocks cannot all be resident; the text gives the largest number that
    /// can.
    ///
    /// # Safety
    /// The kernel is foreign code: it must stay within the memory that its arguments give it, which must live
    /// until it has ended ([`World::synchronize`]), and its accesses must not race with others except
    /// through atomics, signals and the library's own operations.
    pub unsafe fn launch(&self, launch: Launch, args: impl KernelArgs) -> Result<()> {
        // SAFETY: the caller vouches for the kernel and its arguments; null is the default stream.
        unsafe { self.launch_raw(launch, args, std::ptr::null_mut()) }
    }

    /// [`launch`](Kernel::launch) on a stream. On the CPU too, kernels on different streams run at the same
    /// time, each within the limits for one launch.
    ///
    /// # Safety
    /// As for [`launch`](Kernel::launch); the stream's [`synchronize`](Stream::synchronize) says that the
    /// kernel has ended.
    pub unsafe fn launch_on(&self, launch: Launch, args: impl KernelArgs, stream: &Stream<'_>) -> Result<()> {
        let stream = stream.of(self.world)?;
        // SAFETY: the caller vouches for the kernel and its arguments; the stream was found to be this
        // world's.
        unsafe { self.launch_raw(launch, args, stream) }
    }

    /// # Safety
    /// As for [`launch`](Kernel::launch); the stream is null or one of this world.
    unsafe fn launch_raw(&self, launch: Launch, args: impl KernelArgs, stream: *mut c_void) -> Result<()> {
        let config = rushmem_launch_t {
            size: size_of::<rushmem_launch_t>() as u32,
            flags: if launch.in_turns { RUSHMEM_LAUNCH_IN_TURNS } else { 0 }
                | if launch.early { RUSHMEM_LAUNCH_EARLY } else { 0 },
            grid: launch.grid.0,
            block: launch.block.0,
            shared_bytes: launch.shared_bytes as u64,
            stream,
            cluster: launch.cluster.map_or([0; 3], |cluster| cluster.0),
            reserved: 0,
        };
        args.with(|values, types| {
            // SAFETY: a live handle; the values and types outlive the call and are as many as said; what the
            // kernel does is the caller's word.
            self.world.check(unsafe {
                (self.world.runtime().launch)(
                    self.raw,
                    &config,
                    values.as_ptr(),
                    types.as_ptr().cast(),
                    values.len(),
                )
            })
        })
    }

    /// How many blocks of this shape and with this much dynamic shared memory can be resident at once.
    pub fn max_blocks(&self, block: impl Into<Dim3>, shared_bytes: usize) -> Result<u64> {
        let (block, mut most) = (block.into().0, 0);
        // SAFETY: a live handle, three extents and a place for the answer.
        self.world.check(unsafe {
            (self.world.runtime().kernel_max_blocks)(self.raw, block.as_ptr(), shared_bytes, &mut most)
        })?;
        Ok(most)
    }

    /// The types of the parameters, as far as they are known.
    pub fn params(&self) -> Result<Vec<ArgType>> {
        let mut n = 0;
        // SAFETY: a live handle; null asks for the number only.
        self.world.check(unsafe {
            (self.world.runtime().kernel_params)(self.raw, std::ptr::null_mut(), 0, &mut n)
        })?;
        let mut types = vec![ArgType::UNKNOWN; n];
        // SAFETY: a live handle and a place for `n` types, of which `ArgType` is the transparent form.
        self.world.check(unsafe {
            (self.world.runtime().kernel_params)(self.raw, types.as_mut_ptr().cast(), n, &mut n)
        })?;
        types.truncate(n);
        Ok(types)
    }
}

/// The shape of a launch, in CUDA's words: a grid of blocks of threads, and dynamic shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: Dim3,
    /// Threads of a block.
    pub block: Dim3,
    /// Bytes of dynamic shared memory for each block.
    pub shared_bytes: usize,
    /// Blocks of a thread block cluster, on GPUs that have them.
    pub cluster: Option<Dim3>,
    /// Blocks need not all be resident ([`Launch::in_turns`]).
    pub in_turns: bool,
    /// The kernel waits for what the stream has before it by itself ([`Launch::early`]).
    pub early: bool,
}

impl Launch {
    /// `grid` blocks of `block` threads: numbers, or arrays and tuples of up to three.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Launch {
            grid: grid.into(),
            block: block.into(),
            shared_bytes: 0,
            cluster: None,
            in_turns: false,
            early: false,
        }
    }

    /// With this many bytes of dynamic shared memory for each block.
    pub fn shared_bytes(self, shared_bytes: usize) -> Self {
        Launch { shared_bytes, ..self }
    }

    /// Of any number of blocks, which run in turns: a few at a time, as CUDA's ordinary launches do it. So no
    /// block may wait for another one of the launch, nor call collectives at grid scope or `sync_grid()`: the
    /// CPU device ends the launch with an error, on a GPU they wait for blocks that have not begun. Waits for
    /// other PEs are fine where these do not wait for a block of this launch that has not begun; a wait that
    /// lasts is reported, with how many have not.
    pub fn in_turns(self) -> Self {
        Launch { in_turns: true, ..self }
    }

    /// Of a kernel that begins with `rushmem::await_stream()`: it may start while the kernel before it on the
    /// stream ends, and waits by itself, which takes a fraction of a microsecond off. Where the device has no
    /// such launches, the kernel's code was made for a compute capability below 9.0 and has no such wait, or
    /// `RUSHMEM_EARLY_LAUNCH=0`, as any other. A kernel that does not begin so reads and writes what the
    /// kernel before it still does.
    pub fn early(self) -> Self {
        Launch { early: true, ..self }
    }

    /// In thread block clusters of this many blocks, of which the grid must be a multiple.
    pub fn cluster(self, cluster: impl Into<Dim3>) -> Self {
        Launch { cluster: Some(cluster.into()), ..self }
    }
}

/// Extents in x, y and z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim3(pub [u32; 3]);

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Dim3([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Dim3([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Dim3([x, y, z])
    }
}

impl From<[u32; 3]> for Dim3 {
    fn from(extents: [u32; 3]) -> Self {
        Dim3(extents)
    }
}
