//! From source text to a loaded module: the cache first, then two runs of the compiler. The first only
//! preprocesses, to find the kernels; the second compiles the source with a list of them (`list.rs`)
//! appended, behind a line marker, so that every message has the source's own name and line numbers.

mod list;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cache::{self, storage, Entry, Folder, Key, Scratch};
use crate::check_mode::Mode;
use crate::dynamic_shared;
use crate::error::Error;
use crate::headers::{self, Header, HEADERS};
use crate::instead;
use crate::limits::Limits;
use crate::module::Module;
use crate::optimization::Optimization;
use crate::padding;
use crate::ptx;
use crate::scan;
use crate::source::{file_name, LIST};
use crate::toolchain::{machine_fault, Toolchain};
use list::{list, quoted};

static CPU: cache::Form = cache::CPU;

/// The file name of what the compiler is given.
const UNIT: &str = "unit.cpp";
/// And of the assembly of checked kernels, on its way.
const ASSEMBLY: &str = "unit.s";

/// Compiles kernels for the CPU.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// The C++ compiler (`RUSHMEM_CXX`): a path, a name or a command; `None`: c++, g++ or clang++ in PATH.
    pub cxx: Option<PathBuf>,
    /// Where compiled kernels are kept (`RUSHMEM_CACHE_DIR`); `None`: where this user's are, see
    /// [`cache`](crate::cache).
    pub cache_dir: Option<PathBuf>,
    /// Further compiler arguments, and `--kernel=scale<float>` to name an instance of a kernel template.
    pub options: Vec<String>,
    /// Headers to offer besides this crate's own.
    pub headers: &'static [Header],
    /// How well kernels are optimised (`RUSHMEM_CPU_OPT`). An option `-O…` is stronger.
    pub optimization: Optimization,
    /// Limits of the module's launches.
    pub limits: Limits,
    /// What launches check.
    pub check: Mode,
    /// Whether launches can be traced.
    pub trace: bool,
}

/// One compilation.
struct Job<'a> {
    name: &'a str,
    source: &'a str,
    options: Vec<&'a str>,
    /// Kernel instances asked for by `--kernel=`.
    instances: Vec<&'a str>,
    optimization: Optimization,
    toolchain: &'a Toolchain,
    /// Where the headers are for the compiler, and for people.
    headers: (PathBuf, PathBuf),
    entry: &'a Entry,
    /// The source's file in the cache: what debuggers and the compiler's messages quote.
    file: PathBuf,
    /// Compiled with the hooks of checked, of traced runs.
    checked: bool,
    traced: bool,
}

impl Compiler {
    /// A compiler with the environment's limits and nothing special else.
    pub fn new(cache_dir: PathBuf) -> Result<Self, Error> {
        let environment = |text| Error::Environment { text };
        let optimization = Optimization::from_env().map_err(environment)?;
        let limits = Limits::from_env().map_err(environment)?;
        Ok(Compiler {
            cxx: None,
            cache_dir: Some(cache_dir),
            options: Vec::new(),
            headers: &[],
            optimization,
            limits,
            check: Mode::OFF,
            trace: false,
        })
    }

    /// Compiles `source` unless the cache has it, and loads it. `name` stands for the source in messages;
    /// where it has a directory, `#include "…"` is looked for there.
    pub fn compile(&self, name: &str, source: &str) -> Result<Module, Error> {
        let toolchain = Toolchain::find(self.cxx.as_deref())?;
        let files_failed = |error: &Error| matches!(error, Error::Io { .. });
        cache::in_cache(
            self.cache_dir.as_deref(),
            "cpu",
            |error| error,
            files_failed,
            |root| self.compile_in(root, &toolchain, name, source),
        )
    }

    fn compile_in(
        &self,
        root: &Folder,
        toolchain: &Toolchain,
        name: &str,
        source: &str,
    ) -> Result<Module, Error> {
        let mut includes = Key::default();
        for (path, text) in self.all_headers() {
            includes.add(path).add(text);
        }
        let includes = includes.finish();
        let mut key = Key::default();
        key.add(env!("CARGO_PKG_VERSION")).add(&includes).add(name).add(source);
        key.add(&toolchain.stamp).add(&toolchain.version).add(self.optimization.option());
        for option in &self.options {
            key.add(option);
        }
        // With the arguments that their kernels are compiled with, as they were changed last.
        for (_, hooks) in [(self.check.is_on(), "checked 3"), (self.trace, "traced")].iter().filter(|on| on.0)
        {
            key.add(hooks);
        }
        // Relative paths in options mean another file from another directory.
        if let (false, Ok(here)) = (self.options.is_empty(), std::env::current_dir()) {
            key.add(&here.to_string_lossy());
        }
        let failed = |error| storage(format!("kernel cache {}", root.path().display()), error);
        let entry = Entry::open(root, &key.finish(), &CPU).map_err(failed)?;
        let mut contents = entry.contents();
        let (began, mut taken) = (Instant::now(), true);
        if contents.is_none() {
            let lock = entry.lock().map_err(failed)?;
            contents = entry.contents();
            if contents.is_none() {
                let headers = root.sub(&format!("include-{includes}")).map_err(failed)?;
                headers::write(&headers, self.all_headers()).map_err(failed)?;
                let (instances, options) = self
                    .options
                    .iter()
                    .map(String::as_str)
                    .partition(|option| option.starts_with("--kernel="));
                let file = entry.folder.path().join(file_name(name));
                let headers = (headers.via(), headers);
                let job = Job {
                    name,
                    source,
                    options,
                    instances,
                    optimization: self.optimization,
                    toolchain,
                    headers: (headers.0, headers.1.path().to_owned()),
                    entry: &entry,
                    file,
                    checked: self.check.is_on(),
                    traced: self.trace,
                };
                // Whatever killed it, the kernel out of memory say, it need not meet it again.
                let built = match job.build() {
                    Err(Error::Interrupted { text }) => {
                        log::warn!("{name}: {text}; trying once more");
                        job.build()
                    }
                    other => other,
                };
                contents = Some(built?);
                log::debug!(
                    "{name} was compiled in {:.1} s by {} ({}), and is kept in {}",
                    began.elapsed().as_secs_f64(),
                    toolchain.program.display(),
                    toolchain.version.lines().next().unwrap_or_default(),
                    entry.folder.path().display()
                );
                taken = false;
            }
            drop(lock);
        }
        if taken {
            log::debug!("{name} is taken from the kernel cache, {}", entry.folder.path().display());
        }
        let object = contents.and_then(|contents| contents.into_iter().next()).unwrap_or_default();
        Module::load(&object, &entry.folder, name, self.limits, self.check)
    }

    fn all_headers(&self) -> impl Iterator<Item = Header> + '_ {
        HEADERS.iter().chain(self.headers).copied()
    }
}

impl Job<'_> {
    /// The entry's contents, which are in the cache now.
    fn build(&self) -> Result<Vec<Vec<u8>>, Error> {
        let failed = |error| storage(format!("kernel cache {}", self.entry.folder.path().display()), error);
        self.entry.folder.replace(file_name(self.name), self.source.as_bytes()).map_err(failed)?;
        let scratch = self.entry.scratch().map_err(failed)?;
        let source = dynamic_shared::rewrite(self.source);
        let marked = format!("# 1 {}\n{source}\n", quoted(&self.file));

        scratch.folder.replace(UNIT, marked.as_bytes()).map_err(failed)?;
        let mut args = self.common(&scratch);
        args.extend(["-E", "-DRUSHMEM_CPU_SCAN", "-MMD", "-MT", "unit", "-MF"].map(OsString::from));
        args.extend([scratch.path.join("unit.d").into(), "-o".into(), scratch.path.join("unit.ii").into()]);
        self.checked(&args, &scratch)?;
        let text = scratch.folder.read_built("unit.ii").map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let found = scan::kernels(&text);
        self.check_names(&found)?;

        let entries = self.entries(&found);
        let listed = marked + &list(&entries, &found);
        scratch.folder.replace(UNIT, listed.as_bytes()).map_err(failed)?;
        self.compile(&entries, &source, &scratch).map_err(|error| self.with_ptx(error, &text))?;
        let entry = self.entry.folder.via();
        let own = |path: &PathBuf| !path.starts_with(&self.headers.0) && !path.starts_with(&entry);
        let rule = scratch.folder.read_built("unit.d").map_err(failed)?;
        let includes: Vec<PathBuf> = cache::prerequisites(&rule).into_iter().filter(own).collect();
        let contents = vec![scratch.folder.read_built(cache::OBJECT).map_err(failed)?];
        self.entry.install(&contents, &includes).map_err(failed)?;
        Ok(contents)
    }

    fn compile(
        &self,
        entries: &[(String, String)],
        source: &str,
        scratch: &Scratch<'_>,
    ) -> Result<(), Error> {
        let mut args = self.common(scratch);
        args.push("-fPIC".into());
        let link = ["-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic-functions", "-o"].map(OsString::from);
        let object = OsString::from(scratch.path.join(cache::OBJECT));
        let (mut status, mut text);
        if self.checked {
            let assembly = OsString::from(scratch.path.join(ASSEMBLY));
            args.extend(["-S".into(), "-o".into(), assembly.clone()]);
            (status, text) = self.toolchain.run(&args, &scratch.path)?;
            if status.success() {
                let failed = |error| storage(scratch.folder.path().display(), error);
                let written = scratch.folder.read_built(ASSEMBLY).map_err(failed)?;
                let padded = padding::padded(&String::from_utf8_lossy(&written));
                scratch.folder.replace(ASSEMBLY, padded.as_bytes()).map_err(failed)?;
                // Linked by itself, as the driver would add the sanitizer's own library.
                let unit = OsString::from(scratch.path.join("unit.o"));
                let assemble = ["-c".into(), assembly, "-o".into(), unit.clone()];
                for args in [&assemble[..], &[&link[..], &[object, unit]].concat()] {
                    let next = self.toolchain.run(args, &scratch.path)?;
                    (status, text) = (next.0, text + &next.1);
                    if !status.success() {
                        break;
                    }
                }
            }
        } else {
            args.extend(link);
            args.push(object);
            (status, text) = self.toolchain.run(&args, &scratch.path)?;
        }
        if status.success() {
            if !text.is_empty() {
                log::warn!("{}", self.readable(&text));
            }
            return Ok(());
        }
        if let Some(fault) = machine_fault(status, &text) {
            return Err(fault);
        }
        if !text.contains(LIST) {
            return Err(Error::Compile { text: self.readable(&text) });
        }
        // The list is in the way of the message. Without it the source's own fault shows, if it has one.
        let marked = format!("# 1 {}\n{source}\n", quoted(&self.file));
        let failed = |error| storage(scratch.folder.path().display(), error);
        scratch.folder.replace(UNIT, marked.as_bytes()).map_err(failed)?;
        let mut args = self.common(scratch);
        args.push("-fsyntax-only".into());
        self.checked(&args, scratch)?;
        Err(Error::Compile { text: self.unlistable(&text, entries) })
    }

    /// Arguments of every run.
    fn common(&self, scratch: &Scratch<'_>) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["-x".into(), "c++".into(), scratch.path.join(UNIT).into()];
        let fixed = [
            "-std=c++17",
            self.optimization.option(),
            self.optimization.debug_information(&self.options),
            "-pipe",
            // As nvcc: reading a float array through an int4 pointer is everyday CUDA.
            "-fno-strict-aliasing",
            "-fvisibility=hidden",
            // A large frame touches each of its pages, and so the guard page, not the next thread's stack.
            "-fstack-clash-protection",
            // The function whose last statement calls memcpy stays on the stack, and has a line.
            "-fno-optimize-sibling-calls",
            "-fdiagnostics-color=never",
            "-DRUSHMEM_CPU",
        ];
        args.extend(fixed.map(OsString::from));
        if self.traced {
            // Its hooks walk the stack.
            args.extend(["-DRUSHMEM_CPU_TRACE", "-fno-omit-frame-pointer"].map(OsString::from));
        }
        if self.checked {
            args.extend(["-DRUSHMEM_CPU_CHECK", "-fsanitize=thread"].map(OsString::from));
            let volatile: &[&str] = if self.toolchain.is_clang() {
                &["-mllvm", "-tsan-distinguish-volatile"]
            } else {
                // GCC says that its own runtime library does not know fences.
                &["--param", "tsan-distinguish-volatile=1", "-Wno-tsan"]
            };
            args.extend(volatile.iter().map(OsString::from));
            // Copies are calls, which have hooks, and no instructions instead of them.
            let calls = ["-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset"];
            args.extend(calls.map(OsString::from));
            if !self.toolchain.is_clang() {
                // And no two of them are made one, which would have one line; nor are two kernels.
                let apart = [
                    "-fno-tree-loop-distribute-patterns",
                    "-fno-crossjumping",
                    "-fno-tree-tail-merge",
                    "-fno-ipa-icf",
                ];
                args.extend(apart.map(OsString::from));
            }
            // Each variable is reached by its own name, so that there can be room around it.
            if cfg!(target_arch = "aarch64") {
                let clang = self.toolchain.is_clang();
                args.push(if clang { "-mno-global-merge" } else { "-fno-section-anchors" }.into());
            }
            if cfg!(target_arch = "x86_64") && !self.toolchain.is_clang() {
                args.extend(
                    ["cpy", "set"].map(|name| format!("-mmem{name}-strategy=libcall:-1:noalign").into()),
                );
            }
        }
        if !self.toolchain.is_clang() {
            // Each loaded copy has its own statics, and can be unloaded.
            args.push("-fno-gnu-unique".into());
        }
        if !self.name.contains('=') {
            args.push(format!("-fmacro-prefix-map={}={}", self.file.display(), self.name).into());
        }
        // Debuggers get paths that outlive the descriptors.
        for (via, path) in
            [(&self.headers.0, &*self.headers.1), (&self.entry.folder.via(), self.entry.folder.path())]
        {
            args.push(format!("-ffile-prefix-map={}={}", via.display(), path.display()).into());
        }
        for dir in [self.headers.0.clone(), self.headers.0.join("cuda_names")] {
            args.extend(["-I".into(), dir.into()]);
        }
        args.extend(["-include", "rushmem_cpu/cuda.h"].map(OsString::from));
        if let Some(dir) = Path::new(self.name).parent().filter(|dir| dir.is_dir()) {
            args.extend(["-iquote".into(), dir.into()]);
        }
        args.extend(self.options.iter().map(OsString::from));
        args
    }

    fn checked(&self, args: &[OsString], scratch: &Scratch<'_>) -> Result<(), Error> {
        let (status, text) = self.toolchain.run(args, &scratch.path)?;
        if status.success() {
            return Ok(());
        }
        if let Some(fault) = machine_fault(status, &text) {
            return Err(fault);
        }
        let text = self.readable(&text);
        Err(Error::Compile { text: if text.is_empty() { format!("{}: {status}", self.name) } else { text } })
    }

    /// The compiler's messages, with the source called what the caller calls it, and no paths of the cache.
    fn readable(&self, text: &str) -> String {
        let text = text.replace(&*self.file.to_string_lossy(), self.name);
        let text = text.replace(&format!("{}/", self.headers.0.display()), "");
        let mut out: String =
            text.lines().filter(|line| !line.ends_with("unit.cpp:")).flat_map(|line| [line, "\n"]).collect();
        if out.contains("extern __shared__") {
            out += "note: here, RUSHMEM_DYNAMIC_SHARED(type, name) inside the kernel names dynamic shared memory\n";
        }
        out += &instead::notes(&out);
        out
    }

    /// A complaint of the compiler, behind what there is to say of inline PTX in the preprocessed text.
    fn with_ptx(&self, error: Error, preprocessed: &str) -> Error {
        match error {
            Error::Compile { text } => {
                Error::Compile { text: self.readable(&ptx::complaints(preprocessed)) + &text }
            }
            other => other,
        }
    }
}
