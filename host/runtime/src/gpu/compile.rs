//! From CUDA C++ to machine code for one kind of GPU, through the on-disk cache that the CPU device's kernels
//! use too.
//!
//! There are two ways. *Linked*: NVRTC makes LTO-IR, and nvJitLink makes machine code of that and the device
//! library which the runtime carries. *Whole*: NVRTC makes machine code by itself, from headers that then
//! define everything. Kernels do the same either way; the first keeps the library's cold code out of what
//! NVRTC compiles each time, and is the only one for what will be in the library alone. The second needs
//! neither nvJitLink nor a runtime that was built with nvcc, so it serves wherever the first way fails.
//!
//! The headers are handed to NVRTC from memory, so nothing needs to be installed beside it. The code is made
//! for the GPU's own architecture, not as PTX, so it does not matter whether the driver is older than NVRTC,
//! and loading takes no second compiler.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rushmem_device_cpu::cache::{in_cache, storage, Entry, Folder, Form, Key};
use rushmem_device_cpu::Header;

use super::embedded::{self, Library};
use super::nvjitlink::{Input, LinkInput, NvJitLink};
use super::nvrtc::{Compilation, Nvrtc, Output, Product};
use super::signatures;
use super::{includes, link_options, working_dir};
use crate::error::{code, err, Error, Result};

static FORM: Form = Form { heading: "rushmem cuda kernel 3", files: &["kernel.cubin", "kernel.names"] };

/// Headers that C++ and nvcc have and NVRTC does not, as it knows by itself what kernels want of them. They
/// stand in so that one source serves all compilers. A folder given with `-I` that has the real one goes
/// first.
static STAND_INS: &[Header] = &[
    ("cuda_runtime.h", "#pragma once\n"),
    ("device_launch_parameters.h", "#pragma once\n"),
    ("cassert", "#pragma once\n"),
    ("assert.h", "#pragma once\n"),
    ("cstdio", "#pragma once\n"),
    ("stdio.h", "#pragma once\n"),
    ("cstddef", "#pragma once\nnamespace std { using ::size_t; using ::ptrdiff_t; }\n"),
    ("stddef.h", "#pragma once\n"),
    ("cstdint", CSTDINT),
    ("stdint.h", STDINT),
];

/// The types are those of the device library and of CCCL's `<cuda/std/cstdint>`, as all may be included
/// together.
const STDINT: &str = "#pragma once
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using intptr_t = int64_t;
using uintptr_t = uint64_t;
";

const CSTDINT: &str = "#pragma once
#include <stdint.h>
namespace std {
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t;
}
";

/// Compiles kernels for GPUs.
#[derive(Clone, Debug)]
pub(crate) struct Compiler {
    /// Where NVRTC is (RUSHMEM_NVRTC); `None`: look for it.
    pub(crate) nvrtc: Option<PathBuf>,
    /// Where nvJitLink is (RUSHMEM_NVJITLINK); `None`: look for it.
    pub(crate) nvjitlink: Option<PathBuf>,
    /// Where compiled kernels are kept (RUSHMEM_CACHE_DIR); `None`: where this user's are.
    pub(crate) cache_dir: Option<PathBuf>,
    /// The GPU's compute capability.
    pub(crate) capability: (u32, u32),
    /// Further options of NVRTC's, and `--kernel=scale<float>` for an instance of a kernel template.
    pub(crate) options: Vec<String>,
    /// The device library.
    pub(crate) headers: &'static [Header],
}

/// Machine code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cubin {
    /// The code, to load.
    pub(crate) code: Vec<u8>,
    /// Instances of templates that were asked for, as they were asked for, and their names in the code; also
    /// what tells the kernels' types ([`signatures`]).
    pub(crate) instances: Vec<(String, String)>,
}

/// How machine code comes about.
enum CodeFrom {
    /// LTO-IR, linked with this library by this linker under these options.
    Linked { linker: Arc<NvJitLink>, library: Library, options: Vec<String> },
    /// By NVRTC alone.
    Whole,
}

impl Compiler {
    /// Compiles `source` unless the cache has it. `name` stands for it in messages; where it has a directory,
    /// headers are looked for there too.
    pub(crate) fn compile(&self, name: &str, source: &str) -> Result<Cubin> {
        self.compile_with(name, source, embedded::LIBRARY)
    }

    /// The same with that device library.
    fn compile_with(&self, name: &str, source: &str, library: Library) -> Result<Cubin> {
        let nvrtc = Nvrtc::load(self.nvrtc.as_deref())?;
        let options = self.arguments(&nvrtc, name)?;
        let headers = self.all_headers();
        let way = self.way(&nvrtc, &options, library).unwrap_or_else(|why| {
            log::debug!("{name} is compiled without the device library: {why}");
            CodeFrom::Whole
        });
        let mut key = Key::default();
        key.add(env!("CARGO_PKG_VERSION"))
            .add(signatures::TEMPLATE)
            .add(&nvrtc.stamp())
            .add(&way.stamp())
            .add(name)
            .add(source);
        for (path, text) in &headers {
            key.add(path).add(text);
        }
        // Which are options and which instances: the prefix tells.
        for option in options.iter().chain(&self.options) {
            key.add(option);
        }
        if let Some(here) = working_dir::part_of(name, source, &headers, &options) {
            key.add(&here.to_string_lossy());
        }
        let key = key.finish();
        let make = || self.make(&nvrtc, name, source, &headers, &options, &way);
        let files_failed = |e: &Error| e.code == code::IO;
        let kept = in_cache(
            self.cache_dir.as_deref(),
            "cuda",
            |e| err!(IO, "{e}"),
            files_failed,
            |root| self.cached(root, &key, name, source, &headers, make),
        );
        match kept {
            // NVRTC needs no files.
            Err(e) if files_failed(&e) => {
                log::warn!("{name} is compiled and not kept: {e}");
                make()
            }
            other => other,
        }
    }

    /// What the folder has under this key, made and kept if it is nothing.
    fn cached(
        &self,
        root: &Folder,
        key: &str,
        name: &str,
        source: &str,
        headers: &[Header],
        make: impl Fn() -> Result<Cubin>,
    ) -> Result<Cubin> {
        let failed =
            |e: io::Error| err!(IO, "{}", storage(format!("kernel cache {}", root.path().display()), e));
        let entry = Entry::open(root, key, &FORM).map_err(failed)?;
        if let Some(cubin) = entry.contents().and_then(read) {
            return Ok(cubin);
        }
        let _lock = entry.lock().map_err(failed)?;
        if let Some(cubin) = entry.contents().and_then(read) {
            return Ok(cubin);
        }
        let cubin = make()?;
        let includes = self.includes(name, source, headers);
        install(&entry, source, &cubin, &includes).map_err(failed)?;
        Ok(cubin)
    }

    fn make(
        &self,
        nvrtc: &Nvrtc,
        name: &str,
        source: &str,
        headers: &[Header],
        options: &[String],
        way: &CodeFrom,
    ) -> Result<Cubin> {
        let job = Compilation {
            name,
            source,
            headers,
            options,
            instances: &self.instances(),
            made: Product::Cubin,
        };
        let (output, instances) = described(nvrtc, &job, way)?;
        if !output.log.is_empty() {
            log::warn!("{}", output.log);
        }
        Ok(Cubin { code: output.code, instances: instances.into_iter().zip(output.symbols).collect() })
    }

    /// The way to link, or why there is none.
    fn way(
        &self,
        nvrtc: &Nvrtc,
        options: &[String],
        library: Library,
    ) -> std::result::Result<CodeFrom, String> {
        let made_by = library.version().ok_or("the runtime was built without nvcc")?;
        let options = link_options::translate(options)?;
        let linker = NvJitLink::load(self.nvjitlink.as_deref(), &nvrtc.path).map_err(|e| {
            // The user asked for this one.
            if self.nvjitlink.is_some() {
                log::warn!("RUSHMEM_NVJITLINK: {e}");
            }
            e.message
        })?;
        // A linker takes LTO-IR of its own major version, of its own minor version at most (nvJitLink's
        // manual).
        for (what, version) in [("NVRTC", nvrtc.version), ("the runtime's device library", made_by)] {
            if version.0 != linker.version.0 || version > linker.version {
                return Err(format!(
                    "{what} is of CUDA {}.{}, nvJitLink ({}) of {}.{}",
                    version.0,
                    version.1,
                    linker.path.display(),
                    linker.version.0,
                    linker.version.1
                ));
            }
        }
        Ok(CodeFrom::Linked { linker, library, options })
    }

    fn instances(&self) -> Vec<&str> {
        self.options.iter().filter_map(|option| option.strip_prefix("--kernel=")).collect()
    }

    /// NVRTC's options: ours, where the caller's do not say otherwise, and the caller's.
    fn arguments(&self, nvrtc: &Nvrtc, name: &str) -> Result<Vec<String>> {
        let given = || self.options.iter().filter(|option| !option.starts_with("--kernel="));
        let says = |prefixes: &[&str]| {
            given().any(|option| prefixes.iter().any(|prefix| option.starts_with(prefix)))
        };
        let mut all = Vec::new();
        if !says(&["-arch", "--gpu-architecture"]) {
            all.push(format!("--gpu-architecture={}", nvrtc.target(self.capability)?));
        }
        if !says(&["-std", "--std"]) {
            all.push("--std=c++17".into());
        }
        if !says(&["-lineinfo", "--generate-line-info", "-G", "--device-debug"]) {
            all.push("--generate-line-info".into());
        }
        // A function that says nothing of where it runs is the kernel's, as on the CPU device. Without this
        // NVRTC takes even a lambda with an `auto` parameter inside a kernel for a host function.
        if !says(&["-default-device", "--device-as-default-execution-space"]) {
            all.push("--device-as-default-execution-space".into());
        }
        all.extend(given().cloned());
        if let Some(dir) = directory(name) {
            all.push(format!("--include-path={}", dir.display()));
        }
        Ok(all)
    }

    fn include_dirs(&self, name: &str) -> Vec<PathBuf> {
        let mut dirs = Vec::new();
        let mut options = self.options.iter().map(String::as_str);
        while let Some(option) = options.next() {
            let dir = match option {
                "-I" | "--include-path" => options.next(),
                _ => option.strip_prefix("--include-path=").or_else(|| option.strip_prefix("-I")),
            };
            dirs.extend(dir.map(PathBuf::from));
        }
        dirs.extend(directory(name).map(Path::to_owned));
        dirs
    }

    fn all_headers(&self) -> Vec<Header> {
        let dirs = self.include_dirs("");
        let missing = |header: &&Header| !dirs.iter().any(|dir| dir.join(header.0).is_file());
        self.headers.iter().chain(STAND_INS.iter().filter(missing)).copied().collect()
    }

    fn includes(&self, name: &str, source: &str, headers: &[Header]) -> Vec<PathBuf> {
        let provided = |name: &str| headers.iter().any(|header| header.0 == name);
        // The folder of a bare name is the working directory.
        includes::files(source, Path::new(name).parent(), &self.include_dirs(name), &provided)
    }
}

impl CodeFrom {
    /// Tells one way from another. What comes of it is cached under this, also where a link fails and the way
    /// turns out to be the other one: it would again.
    fn stamp(&self) -> String {
        match self {
            CodeFrom::Linked { linker, library, options } => {
                format!("{} {} {}", linker.stamp(), library.stamp(), options.join(" "))
            }
            CodeFrom::Whole => "whole".into(),
        }
    }
}

/// Compiles with the expressions that yield the kernels' types; where that fails, without them. Also returns
/// the expressions that were used in the end.
fn described(nvrtc: &Nvrtc, job: &Compilation<'_>, way: &CodeFrom) -> Result<(Output, Vec<String>)> {
    let asked: Vec<String> = job.instances.iter().map(|instance| (*instance).to_owned()).collect();
    let expressions = signatures::expressions(job.source);
    if !expressions.is_empty() {
        let all = [asked.clone(), expressions].concat();
        let instances: Vec<&str> = all.iter().map(String::as_str).collect();
        let source = [job.source, signatures::TEMPLATE].concat();
        if let Ok(output) = make(nvrtc, &Compilation { source: &source, instances: &instances, ..*job }, way)
        {
            return Ok((output, all));
        }
    }
    Ok((make(nvrtc, job, way)?, asked))
}

/// Compiles and links with the device library, where that is the way; compiles alone where it is not, or
/// fails: errors in the source show there, too.
fn make(nvrtc: &Nvrtc, job: &Compilation<'_>, way: &CodeFrom) -> Result<Output> {
    if let CodeFrom::Linked { linker, library, options } = way {
        match linked(nvrtc, job, linker, library, options) {
            Ok(output) => return Ok(output),
            Err(e) => log::debug!("{} is compiled without the device library: {e}", job.name),
        }
    }
    nvrtc.compile(job)
}

fn linked(
    nvrtc: &Nvrtc,
    job: &Compilation<'_>,
    linker: &NvJitLink,
    library: &Library,
    options: &[String],
) -> Result<Output> {
    let output = nvrtc.compile(&Compilation { made: Product::LtoIr, ..*job })?;
    let kernels = Input { kind: LinkInput::LtoIr, name: job.name, code: &output.code };
    let library = Input { kind: LinkInput::Fatbin, name: "rushmem's device library", code: library.code };
    let code = linker.link(options, &[kernels, library])?;
    Ok(Output { code, ..output })
}

/// The directory that a source's name tells, where there is one.
fn directory(name: &str) -> Option<&Path> {
    Path::new(name).parent().filter(|dir| !dir.as_os_str().is_empty() && dir.is_dir())
}

fn install(entry: &Entry, source: &str, cubin: &Cubin, includes: &[PathBuf]) -> io::Result<()> {
    // For people: nothing reads it.
    entry.folder.replace("source.cu", source.as_bytes())?;
    let names: String = cubin.instances.iter().map(|(asked, symbol)| format!("{symbol} {asked}\n")).collect();
    entry.install(&[&cubin.code, names.as_bytes()], includes)
}

fn read(contents: Vec<Vec<u8>>) -> Option<Cubin> {
    let [code, names]: [Vec<u8>; 2] = contents.try_into().ok()?;
    let names = String::from_utf8(names).ok()?;
    let pair = |line: &str| line.split_once(' ').map(|(symbol, asked)| (asked.to_owned(), symbol.to_owned()));
    Some(Cubin { code, instances: names.lines().filter_map(pair).collect() })
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod link_tests;
#[cfg(test)]
#[path = "compile_tests.rs"]
mod tests;
