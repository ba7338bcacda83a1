//! The headers that make a C++ compiler understand CUDA C++, carried inside this crate so that nothing has to
//! be installed, and written to the cache directory for the compiler.

use std::io;

use crate::cache::Folder;

/// Path under the include directory, and text.
pub type Header = (&'static str, &'static str);

macro_rules! headers {
    ($($dir:literal: $($name:literal)*;)*) => {
        &[$($((concat!($dir, $name), include_str!(concat!("../include/", $dir, $name)))),*),*]
    };
}

pub(crate) const HEADERS: &[Header] = headers! {
    "rushmem_cpu/": "atomic.h" "cuda.h" "float16.h" "float16_bits.h" "hooks.h" "intrinsics.h" "kernel.h"
        "qualifiers.h" "sync.h" "vector_types.h" "warp.h";
    "cuda_names/": "cooperative_groups.h" "cuda_bf16.h" "cuda_fp16.h" "cuda_runtime.h" "device_launch_parameters.h";
    "cuda_names/cooperative_groups/": "memcpy_async.h" "operators.h" "reduce.h" "scan.h";
};

/// Makes the folder hold these headers. Each file is replaced whole, so that a compiler running at the same
/// time reads one or the other, and these are the same.
pub(crate) fn write(folder: &Folder, headers: impl Iterator<Item = Header>) -> io::Result<()> {
    for (path, text) in headers {
        let mut names: Vec<&str> = path.split('/').collect();
        let name = names.pop().unwrap_or_default();
        let mut inner = None;
        for dir in names {
            inner = Some(inner.as_ref().unwrap_or(folder).sub(dir)?);
        }
        let inner = inner.as_ref().unwrap_or(folder);
        if !inner.read(name).is_ok_and(|present| present == text.as_bytes()) {
            inner.replace(name, text.as_bytes())?;
        }
    }
    Ok(())
}
