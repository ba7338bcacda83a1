//! Every typed form of every function in a kernel of its own, compiled for the GPUs that people have and
//! linked with the device library; for one of them as whole programs, too, in C++20.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rushmem_nvshmem::table::{Caller, Chapter, Function, Table, TEXT};
use rushmem_nvshmem::PREFIX;

use crate::nvcc::{nvcc, quickly, whole};
use crate::{compile, here};

const ARCHS: [&str; 3] = ["sm_90", "sm_80", "sm_100"];

/// Functions in one compilation of the whole: cores share the work in such pieces.
const PIECE: usize = 40;

/// A kernel that calls a function, and what is needed for it.
fn kernel_of(number: usize, f: &Function) -> String {
    let mut parameters = Vec::new();
    let mut names = Vec::new();
    let arguments = if f.arguments == "void" { "" } else { &f.arguments };
    for (i, argument) in arguments.split(", ").filter(|argument| !argument.is_empty()).enumerate() {
        let end = argument.rfind([' ', '*']).map_or(0, |at| at + 1);
        // A type alone, or one with a name behind it.
        let of = if argument.ends_with('*') || end == 0 { argument } else { argument[..end].trim() };
        parameters.push(format!("{of} a{i}"));
        names.push(format!("a{i}"));
    }
    let store = if f.result == "void" {
        String::new()
    } else {
        parameters.push(format!("{} *result", f.result));
        "*result = ".into()
    };
    let (parameters, names) = (parameters.join(", "), names.join(", "));
    format!("__global__ void k{number}({parameters}) {{ {store}{}({names}); }}\n", f.name)
}

/// A record of what was compiled, a row each time: in the file that RUSHMEM_TEST_RECORD names, if it does.
/// What stands there already is not compiled again, so that the whole can be done in parts.
struct Record {
    before: String,
    file: Mutex<Option<File>>,
}

impl Record {
    fn begin(nvcc: &Path, options: &str) -> Record {
        let path = std::env::var_os("RUSHMEM_TEST_RECORD").map(PathBuf::from);
        let before = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let file = path.map(|path| {
            let opened = OpenOptions::new().append(true).create(true).open(&path);
            opened.unwrap_or_else(|e| panic!("RUSHMEM_TEST_RECORD: {}: {e}", path.display()))
        });
        let record = Record { before, file: Mutex::new(file) };
        let last_line = |out: std::io::Result<Output>| {
            let text = out.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
            text.lines().last().map(|line| line.trim().to_owned())
        };
        let unknown = || "unknown".to_owned();
        let nvcc = last_line(Command::new(nvcc).arg("--version").output()).unwrap_or_else(unknown);
        let mut git = Command::new("git");
        let commit = last_line(git.arg("-C").arg(here()).args(["describe", "--always", "--dirty"]).output());
        // A copy of the tree on another machine has no history.
        let commit = commit.or_else(|| std::env::var("RUSHMEM_TEST_COMMIT").ok()).unwrap_or_else(unknown);
        let date = last_line(Command::new("date").args(["-u", "+%F"]).output()).unwrap_or_else(unknown);
        let what = "forms_of_kernels_compile: each function in a kernel of its own, linked with the library";
        record.line(&format!("# {what}, nvcc {options}"));
        record.line(&format!("# {date}, commit {commit}, nvcc {nvcc}"));
        if record.before.is_empty() {
            record.line("chapter,first,functions,arch,seconds");
        }
        record
    }

    fn has(&self, row: &str) -> bool {
        self.before.lines().any(|line| line.starts_with(row))
    }

    fn line(&self, line: &str) {
        eprintln!("{line}");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &mut *file {
            writeln!(file, "{line}").expect("the record takes a line");
        }
    }
}

/// What one compilation takes: of a chapter the functions from `first` on, for one kind of GPU.
struct Piece {
    row: String,
    arch: &'static str,
    source: String,
}

fn piece(title: &str, first: usize, arch: &'static str, functions: &[&Function]) -> Piece {
    let mut source = String::from("#include <nvshmem.h>\n#include <nvshmemx.h>\n");
    functions.iter().enumerate().for_each(|(i, f)| source.push_str(&kernel_of(i, f)));
    Piece { row: format!("\"{title}\",{first},{},{arch},", functions.len()), arch, source }
}

/// The whole table, cut into pieces.
fn all(table: &Table) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (at, chapter) in table.chapters.iter().enumerate() {
        // Two chapters of one title are one of them.
        if table.chapters[..at].iter().any(|before| before.title == chapter.title) {
            continue;
        }
        let chapters = table.chapters.iter().filter(|other| other.title == chapter.title);
        let rows = chapters.flat_map(|chapter| &chapter.operations);
        let all: Vec<Function> = rows.flat_map(|row| table.functions(row)).collect();
        let all: Vec<&Function> = all.iter().filter(|f| f.caller != Caller::Host).collect();
        for (number, functions) in all.chunks(PIECE).enumerate() {
            pieces.extend(ARCHS.map(|arch| piece(&chapter.title, number * PIECE, arch, functions)));
        }
    }
    // What takes longest comes first, so that cores end together.
    pieces.sort_by_key(|piece| !piece.row.starts_with("\"Reductions"));
    pieces
}

/// The forms of one type and of one width that compile quickly, and of each other chapter one function, for
/// sm_90; for the others some of them. Each seed takes others.
fn some(table: &Table, seed: usize) -> Vec<Piece> {
    let heavy = |title: &str| ["Reductions", "Collectives", "Hints", "Teams"].contains(&title);
    let of_kernels = |chapter: &Chapter| -> Vec<Function> {
        let functions = chapter.operations.iter().flat_map(|row| table.functions(row));
        functions.filter(|f| f.caller != Caller::Host).collect()
    };
    let (quick, slow): (Vec<&Chapter>, Vec<&Chapter>) =
        table.chapters.iter().partition(|chapter| !heavy(&chapter.title));
    let all: Vec<Function> = quick.into_iter().flat_map(of_kernels).collect();
    let pick = |sized: bool| {
        let of = all.iter().filter_map(|f| f.of.as_ref()).filter(|of| of.c.is_empty() == sized);
        let names: BTreeSet<&str> = of.map(|of| of.name.as_str()).collect();
        names.iter().nth(seed % names.len()).copied().map(str::to_owned)
    };
    let picked = [pick(false), pick(true)];
    eprintln!("RUSHMEM_TEST_SEED={seed}: {picked:?}");
    let is_one = |f: &Function| {
        let of = f.of.as_ref().map(|of| of.name.clone());
        of.is_none() || picked.contains(&of) && !f.name.contains("_qp_")
    };
    let mut some: Vec<Function> = all.iter().filter(|f| is_one(f)).cloned().collect();
    some.extend(slow.into_iter().filter_map(|chapter| {
        let functions = of_kernels(chapter);
        functions.get(seed % functions.len().max(1)).cloned()
    }));
    let each = |arch, step| piece("Some of all", 0, arch, &some.iter().step_by(step).collect::<Vec<_>>());
    vec![each(ARCHS[0], 1), each(ARCHS[1], 16), each(ARCHS[2], 16)]
}

/// The device library, for all of them, in that folder.
fn library(nvcc: &Path, dir: &Path) -> String {
    let lib = dir.to_str().expect("a path of ours is UTF-8").to_owned();
    let mut device = Command::new(here().join("device/library"));
    let out = device.arg(PREFIX).arg(&lib).env("NVCC", nvcc).output().expect("a script of ours runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    lib
}

/// That of RUSHMEM_TEST_SEED, or this process's own.
fn seed() -> usize {
    let given = std::env::var("RUSHMEM_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| std::process::id() as usize)
}

/// All typed forms for sm_80, sm_90 and sm_100, which takes hours of a core: with RUSHMEM_TEST_ROUNDS=all, on
/// all cores. Else some of them, on one.
#[test]
fn forms_of_kernels_compile() {
    let Some(nvcc) = nvcc("forms_of_kernels_compile") else { return };
    let quick = quickly(&nvcc);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let table = Table::read(TEXT);
    let lib = library(&nvcc, dir.path());
    let fixed = ["-std=c++17", "-Werror", "all-warnings", "-rdc=true", "-c"].into_iter().chain(quick);
    let record = Record::begin(&nvcc, &fixed.collect::<Vec<_>>().join(" "));
    let mut pieces = if whole() { all(&table) } else { some(&table, seed()) };
    pieces.retain(|piece| !record.has(&piece.row));
    let workers = if whole() { thread::available_parallelism().map_or(1, usize::from) } else { 1 };
    let next = AtomicUsize::new(0);
    let work = |worker: usize| {
        let source = dir.path().join(format!("{worker}.cu"));
        let object = dir.path().join(format!("{worker}.o"));
        let object = object.to_str().expect("a path of ours is UTF-8");
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            std::fs::write(&source, &piece.source).expect("the folder is there");
            let begin = Instant::now();
            let arch = format!("-arch={}", piece.arch);
            let options: Vec<&str> =
                ["-rdc=true", "-c", &arch, "-o", object].into_iter().chain(quick).collect();
            compile(&nvcc, &source, &options);
            let linked = format!("{object}.linked.o");
            let link = ["-dlink", &arch, "-L", &lib, "-lnvshmem_device", "-o", &linked];
            compile(&nvcc, Path::new(object), &link);
            if piece.arch == ARCHS[0] {
                let alone = ["-std=c++20", "-cubin", &arch, "-o", &linked];
                let alone: Vec<&str> = alone.into_iter().chain(quick).collect();
                compile(&nvcc, &source, &alone);
            }
            record.line(&format!("{}{}", piece.row, begin.elapsed().as_secs()));
        }
    };
    thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || work(worker));
        }
    });
}
