//! Launches: shapes checked, dynamic shared memory raised beyond CUDA's default, collective launches that
//! either have all their blocks resident or are refused.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUlaunchAttributeID as Id, CUresult};

use super::driver::{cu, failure};
use super::module::Kernel;
use super::stream::Stream;
use crate::error::{err, Result};
use rushmem_abi::c::rushmem_arg_type_t;

/// The shape of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Blocks in x, y, z.
    pub(crate) grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub(crate) block: [u32; 3],
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: usize,
    /// All blocks must be resident at once, as blocks that wait for one another must.
    pub(crate) cooperative: bool,
    /// Blocks of a thread block cluster in x, y, z.
    pub(crate) cluster: Option<[u32; 3]>,
    /// Its blocks may start once those of the kernel before it on the stream have ended, while what that one
    /// wrote is still on its way: the kernel waits by itself until all of it is there, first of all. Where
    /// the GPU, the driver or the kernel's code does not know of that, and behind anything but a kernel, it
    /// starts as others do.
    pub(crate) early: bool,
}

impl Kernel {
    /// Its name, as people write it.
    pub(crate) fn name(&self) -> &str {
        &self.module.entry(self.index).name
    }

    /// The parameters.
    pub(crate) fn params(&self) -> &[rushmem_arg_type_t] {
        &self.module.entry(self.index).params
    }

    /// Offset and size of each parameter in one buffer of arguments.
    #[cfg(test)]
    pub(crate) fn layout(&self) -> &[(usize, usize)] {
        &self.module.entry(self.index).layout
    }

    fn raw(&self) -> sys::CUfunction {
        self.module.entry(self.index).raw
    }

    fn attribute(&self, attribute: Attribute) -> Result<usize> {
        let mut value = 0;
        // SAFETY: a function of a loaded module; writes one int.
        unsafe { cu!(cuFuncGetAttribute(&mut value, attribute, self.raw())) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }

    /// Why no block of this shape can run, if so; else it can afterwards.
    fn admit(&self, block: [u32; 3], shared: usize, cluster: Option<[u32; 3]>) -> Result<()> {
        let facts = self.module.cuda().facts();
        let threads = volume(block);
        let most = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)? as u64;
        if threads == 0 || threads > most {
            return Err(err!(
                LAUNCH,
                "kernel `{}`: a block of {threads} threads: 1 to {most} here",
                self.name()
            ));
        }
        let fixed = self.attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
        let room = facts.shared_most.saturating_sub(fixed);
        if shared > room {
            return Err(err!(
                LAUNCH,
                "kernel `{}`: {shared} bytes of dynamic shared memory: at most {room} here ({fixed} are static)",
                self.name()
            ));
        }
        if shared + fixed > facts.shared_default
            && self.attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)? < shared
        {
            // A limit reserves nothing, and every thread raises it to the same value: they need no lock.
            let limit = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: a function of a loaded module.
            unsafe { cu!(cuFuncSetAttribute(self.raw(), limit, room as i32)) }?;
        }
        match cluster.map(volume) {
            None => {}
            Some(_) if !facts.clusters => {
                return Err(err!(UNSUPPORTED, "{} has no thread block clusters", self.module.cuda()));
            }
            Some(0 | 17..) => {
                return Err(err!(LAUNCH, "kernel `{}`: a cluster has 1 to 16 blocks", self.name()));
            }
            // Eight are what every GPU with clusters has; more must be asked for.
            Some(9..) => {
                let beyond = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
                // SAFETY: a function of a loaded module.
                unsafe { cu!(cuFuncSetAttribute(self.raw(), beyond, 1)) }?;
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The largest number of blocks of this shape that the GPU, with nothing else on it, can have resident at
    /// once; 0 where none can run.
    pub(crate) fn max_blocks(
        &self,
        block: [u32; 3],
        shared: usize,
        cluster: Option<[u32; 3]>,
    ) -> Result<u64> {
        let cuda = self.module.cuda();
        let _current = cuda.current()?;
        if self.admit(block, shared, cluster).is_err() {
            cuda.check()?;
            return Ok(0);
        }
        let mut count = 0;
        if let Some(cluster) = cluster {
            let (grid, cluster) = (cluster, Some(cluster));
            let shape = Shape { grid, block, shared, cooperative: false, cluster, early: false };
            let mut attributes = shape.attributes();
            let config = shape.config(std::ptr::null_mut(), &mut attributes);
            // SAFETY: a function of a loaded module, a description that lives through the call; writes one
            // int.
            unsafe { cu!(cuOccupancyMaxActiveClusters(&mut count, self.raw(), &config)) }?;
            return Ok(u64::try_from(count).unwrap_or(0) * volume(grid));
        }
        let threads = volume(block) as i32;
        // SAFETY: a function of a loaded module; writes one int.
        unsafe { cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut count, self.raw(), threads, shared)) }?;
        Ok(u64::try_from(count).unwrap_or(0) * u64::from(cuda.facts().sms))
    }

    /// Whether a launch that may start early does.
    pub(crate) fn starts_early(&self) -> bool {
        self.module.cuda().facts().early_launches && self.module.entry(self.index).waits_by_itself
    }

    /// Puts a launch on the stream. The argument values are copied before it returns.
    ///
    /// # Safety
    /// Each of `args` points at a value of its parameter's type, and the kernel is sound with them.
    pub(crate) unsafe fn launch(&self, shape: &Shape, args: &[*const c_void], stream: &Stream) -> Result<()> {
        let (cuda, name) = (self.module.cuda(), self.name());
        if args.len() != self.params().len() {
            return Err(err!(
                LAUNCH,
                "kernel `{name}` takes {} arguments, got {}",
                self.params().len(),
                args.len()
            ));
        }
        if let Some(i) = args.iter().position(|at| at.is_null()) {
            return Err(err!(INVALID_ARGUMENT, "argument {i} of `{name}`: the pointer to its value is null"));
        }
        if volume(shape.grid) == 0 {
            return Err(err!(LAUNCH, "kernel `{name}`: a grid of no blocks"));
        }
        if let Some(cluster) = shape.cluster {
            if shape.grid.iter().zip(cluster).any(|(blocks, each)| each == 0 || blocks % each != 0) {
                return Err(err!(
                    LAUNCH,
                    "kernel `{name}`: a grid of {} blocks is no whole number of clusters of {}",
                    dims(shape.grid),
                    dims(cluster)
                ));
            }
        }
        let _current = cuda.current()?;
        self.admit(shape.block, shape.shared, shape.cluster)?;
        let early = shape.early && self.starts_early();
        let mut attributes = Shape { early, ..*shape }.attributes();
        let config = shape.config(stream.raw(), &mut attributes);
        let mut args: Vec<*mut c_void> = args.iter().map(|at| at.cast_mut()).collect();
        // SAFETY: as many arguments as parameters, which the call copies; the rest per contract.
        match unsafe { sys::cuLaunchKernelEx(&config, self.raw(), args.as_mut_ptr(), std::ptr::null_mut()) } {
            CUresult::CUDA_SUCCESS => Ok(()),
            CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
                let most = self.max_blocks(shape.block, shape.shared, shape.cluster)?;
                Err(err!(
                    LAUNCH,
                    "kernel `{name}`: {} blocks of {} threads with {} bytes of dynamic shared memory, of which {cuda} can \
                     have {most} resident at once, and all must be",
                    volume(shape.grid),
                    volume(shape.block),
                    shape.shared
                ))
            }
            other => {
                let (grid, block, shared) = (dims(shape.grid), dims(shape.block), shape.shared);
                let what =
                    format!("kernel `{name}`, {grid} blocks of {block} threads with {shared} shared bytes");
                Err(failure("cuLaunchKernelEx", other).context(what))
            }
        }
    }
}

/// Dimensions for people: `4 x 2 x 1`.
fn dims([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}

impl Shape {
    fn attributes(&self) -> Vec<sys::CUlaunchAttribute> {
        let mut list = Vec::new();
        let mut add = |id, set: &dyn Fn(&mut sys::CUlaunchAttributeValue)| {
            let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
            set(&mut value);
            list.push(sys::CUlaunchAttribute { id, pad: [0; 4], value });
        };
        if self.cooperative {
            add(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| value.cooperative = 1);
        }
        if let Some([x, y, z]) = self.cluster {
            add(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
                value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            });
        }
        if self.early {
            add(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &|value| {
                value.programmaticStreamSerializationAllowed = 1;
            });
        }
        list
    }

    fn config(
        &self,
        stream: sys::CUstream,
        attributes: &mut [sys::CUlaunchAttribute],
    ) -> sys::CUlaunchConfig {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        sys::CUlaunchConfig {
            gridDimX: gx,
            gridDimY: gy,
            gridDimZ: gz,
            blockDimX: bx,
            blockDimY: by,
            blockDimZ: bz,
            // What does not fit was refused before.
            sharedMemBytes: u32::try_from(self.shared).unwrap_or(u32::MAX),
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as u32,
        }
    }
}

/// Elements of a grid, a block or a cluster.
fn volume([x, y, z]: [u32; 3]) -> u64 {
    u64::from(x).saturating_mul(u64::from(y)).saturating_mul(u64::from(z))
}
