//! The headers that make a C++ compiler understand CUDA C++, carried inside this crate so that nothing has to be
//! installed, and written to the cache directory for the compiler.

use std::fs;
use std::io;
use std::path::Path;

/// Path under the include directory, and text.
pub type Header = (&'static str, &'static str);

macro_rules! headers {
    ($($dir:literal: $($name:literal)*;)*) => {
        &[$($((concat!($dir, $name), include_str!(concat!("../include/", $dir, $name)))),*),*]
    };
}

pub(crate) const HEADERS: &[Header] = headers! {
    "rushmem_cpu/": "atomic.h" "cuda.h" "hooks.h" "intrinsics.h" "kernel.h" "qualifiers.h" "sync.h" "vector_types.h" "warp.h";
    "cuda_names/": "cuda_runtime.h" "device_launch_parameters.h";
};

/// Makes `dir` hold these headers. Each file is replaced whole, so that a compiler running at the same time reads
/// one or the other, and these are the same.
pub(crate) fn write(dir: &Path, headers: impl Iterator<Item = Header>) -> io::Result<()> {
    for (path, text) in headers {
        let target = dir.join(path);
        if fs::read(&target).is_ok_and(|present| present == text.as_bytes()) {
            continue;
        }
        fs::create_dir_all(target.parent().unwrap_or(dir))?;
        crate::cache::replace(&target, text.as_bytes())?;
    }
    Ok(())
}
