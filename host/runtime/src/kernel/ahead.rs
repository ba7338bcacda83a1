//! Kernels compiled ahead for GPUs that need not be there (`RUSHMEM_COMPILE_FOR`): a machine without one
//! learns whether they compile, and leaves the code where a machine with one finds it.

use super::{compiling, gpu_compiler, gpu_trace, Common};
use crate::error::Result;

/// Compiles the source for each kind of GPU that the setting names, into the cache.
pub(super) fn compile(common: &Common, name: &str, source: &str, options: &[String]) -> Result<()> {
    for &(major, minor) in &common.config.compile_for {
        let target = format!("for sm_{major}{minor} (RUSHMEM_COMPILE_FOR)");
        let options = gpu_trace::options(&common.config, options.to_owned());
        let compiler = gpu_compiler(&common.config, (major, minor), options);
        let (called, source) = (name.to_owned(), source.to_owned());
        compiling::beside(&common.health, &format!("{name}, {target},"), move || {
            compiler.compile(&called, &source)
        })?
        .map_err(|e| e.context(format!("compiling {target}")))?;
    }
    Ok(())
}
