//! The race detector on small programs of one PE: each with a mistake, which is reported with its two lines,
//! and without, in silence.

use std::sync::Mutex;

use rushmem_device_cpu::check::{findings, Mode};
use rushmem_device_cpu::{LaunchConfig, Module};
use rushmem_device_cpu_test_support::{compiler, run, shape};

const SOURCES: [(&str, &str); 2] = [
    ("races.cu", include_str!("kernels/races.cu")),
    ("races_scopes.cu", include_str!("kernels/races_scopes.cu")),
];

/// Reports are the process's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn module(dir: &std::path::Path, (name, source): (&str, &str)) -> Module {
    let mut compiler = compiler(dir);
    compiler.check = Mode::RACES;
    compiler.compile(name, source).unwrap_or_else(|error| panic!("{error}"))
}

/// Lines of a kernel that are marked.
fn marked(source: &str, kernel: &str) -> Vec<usize> {
    let head = format!("KERNEL {kernel}(");
    let lines: Vec<&str> = source.lines().collect();
    let start = lines.iter().position(|line| line.starts_with(&head)).expect(kernel);
    let length = lines[start..].iter().position(|line| line.starts_with('}')).expect("its end");
    (start..start + length).filter(|&i| lines[i].contains("// race")).map(|i| i + 1).collect()
}

#[test]
fn planted_races_are_found_and_their_twins_are_silent() {
    let _one = ONE_AT_A_TIME.lock();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut wrong = Vec::new();
    let mut planted = 0;
    for (file, source) in SOURCES {
        let module = module(dir.path(), (file, source));
        let names: Vec<String> = module.kernel_names().map(str::to_owned).collect();
        for name in &names {
            let kernel = module.kernel(name).expect("listed");
            let blocks =
                if source.find(&format!("KERNEL {name}(")) > source.find("// ---- blocks") { 2 } else { 1 };
            let config = LaunchConfig { shared: 4096, ..shape(blocks, 64) };
            run(&kernel, &config, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
            let reports = findings::take();
            if name.ends_with("_good") {
                if !reports.is_empty() {
                    wrong.push(format!("{name} has no race:\n{}", reports.join("\n")));
                }
                continue;
            }
            planted += 1;
            let lines = marked(source, name);
            let names_all = |text: &String| lines.iter().all(|line| text.contains(&format!("{file}:{line}")));
            if !reports.iter().any(names_all) {
                wrong.push(format!("{name}, lines {lines:?}:\n{}", reports.join("\n")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(planted >= 28, "{planted} programs");
}
