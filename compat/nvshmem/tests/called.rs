//! Every family of functions is called in a test: what the table has is compared with what programs of
//! tests/c and tests/kernels call, as the C preprocessor leaves it of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use rushmem_nvshmem::table::{Caller, Function, Table, TEXT};
use rushmem_nvshmem::PREFIX;

/// A function's name with its type or width left out: `nvshmem_{T}_put`, `nvshmem_put{S}_nbi`.
fn family(f: &Function) -> String {
    match &f.of {
        None => f.name.clone(),
        Some(of) if of.c.is_empty() => f.name.replacen(&of.name, "{S}", 1),
        Some(of) => f.name.replacen(&format!("_{}_", of.name), "_{T}_", 1),
    }
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The files of a folder of tests that end so.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let dir = std::fs::read_dir(tests().join(folder)).expect("a folder of ours");
    let all = dir.map(|entry| entry.expect("a folder of ours").path());
    all.filter(|path| path.extension().is_some_and(|e| e == ending)).collect()
}

/// What a test's own lines call: names in front of an opening parenthesis. `None` without a C compiler.
fn calls(file: &Path, language: &str, stand_ins: &Path) -> Option<BTreeSet<String>> {
    let mut cc = Command::new("cc");
    cc.args(["-E", "-x", language]).arg(file);
    for include in [format!("{PREFIX}/tests"), format!("{PREFIX}/include")] {
        cc.arg("-I").arg(include);
    }
    cc.arg("-I").arg(tests().join("../../../host/runtime/include")).arg("-I").arg(stand_ins);
    let out = cc.output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let (own, mut is_own) = (tests(), false);
    let mut lines = String::new();
    for line in text.lines() {
        // `# 12 "families.c" 2`: where the lines that follow come from.
        if let Some(from) = line.strip_prefix("# ").and_then(|rest| rest.split('"').nth(1)) {
            is_own = Path::new(from).starts_with(&own);
        } else if is_own {
            lines.push_str(line);
            lines.push('\n');
        }
    }
    assert!(
        !lines.is_empty(),
        "nothing is left of {}: {}",
        file.display(),
        String::from_utf8_lossy(&out.stderr)
    );
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let before = lines.split('(').map(|text| text.trim_end());
    let names = before.map(|text| &text[text.rfind(|c| !of_name(c)).map_or(0, |at| at + 1)..]);
    Some(names.filter(|name| name.starts_with("nvshmem")).map(String::from).collect())
}

/// The families of functions of which none is called.
fn not_called(
    test: &str,
    files: &[PathBuf],
    language: &str,
    is_asked: impl Fn(&Function) -> bool,
) -> Option<Vec<String>> {
    // MPI's header need not be here.
    let stand_ins = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(stand_ins.path().join("mpi.h"), "").expect("the folder is there");
    let mut called = BTreeSet::new();
    for file in files {
        let Some(more) = calls(file, language, stand_ins.path()) else {
            eprintln!("SKIP {test}: no cc on this machine");
            return None;
        };
        called.extend(more);
    }
    let all = Table::read(TEXT).all();
    let asked: Vec<&Function> = all.iter().filter(|f| is_asked(f)).collect();
    assert!(asked.len() > 1700, "{} functions", asked.len());
    let have: BTreeSet<String> =
        asked.iter().filter(|f| called.contains(&f.name)).map(|f| family(f)).collect();
    let families: BTreeSet<String> = asked.iter().map(|f| family(f)).collect();
    Some(families.difference(&have).cloned().collect())
}

#[test]
fn every_family_of_the_host_is_called() {
    let test = "every_family_of_the_host_is_called";
    let Some(left) = not_called(test, &files("c", "c"), "c", |f| f.caller == Caller::Host) else { return };
    assert!(left.is_empty(), "no program of tests/c calls {left:?}");
}

#[test]
fn every_family_of_kernels_is_called() {
    let test = "every_family_of_kernels_is_called";
    let kernels = files("kernels", "cu");
    let Some(left) = not_called(test, &kernels, "c++", |f| f.caller != Caller::Host) else { return };
    assert!(left.is_empty(), "no kernel of tests/kernels calls {left:?}");
}
