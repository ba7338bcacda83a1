//! Kernels compiled ahead for GPUs that need not be there (`RUSHMEM_COMPILE_FOR`): a machine without one
//! learns whether they compile, and leaves the code where a machine with one finds it.

use super::{headers, Common};
use crate::error::{Error, Result};
use crate::gpu::compile::Compiler;

/// Compiles the source for each kind of GPU that the setting names, into the cache.
pub(super) fn compile(common: &Common, name: &str, source: &str, options: &[String]) -> Result<()> {
    let config = &common.config;
    for &capability in &config.compile_for {
        let compiler = Compiler {
            nvrtc: config.nvrtc.clone(),
            nvjitlink: config.nvjitlink.clone(),
            cache_dir: config.cache_dir.clone(),
            capability,
            options: options.to_owned(),
            headers: headers::DEVICE_HEADERS,
        };
        let (major, minor) = capability;
        let about = || format!("for {name} to be compiled for sm_{major}{minor} (RUSHMEM_COMPILE_FOR)");
        let _outside = common.health.outside(about);
        compiler.compile(name, source).map_err(|e| ahead(e, capability))?;
    }
    Ok(())
}

fn ahead(e: Error, (major, minor): (u32, u32)) -> Error {
    e.context(format!("compiling for sm_{major}{minor} (RUSHMEM_COMPILE_FOR)"))
}
