//! `RUSHMEM_CHECK=races`: small programs of two PEs with one mistake each, which is reported with both lines,
//! and their twins without, in silence. PEs are processes, threads, and far from one another.

mod host;

use std::time::Duration;

use rushmem::testing::{self, Exit, Outcome};
use rushmem::{Kernel, Launch, Module, SignalRef, Signals, Source, SymSlice, World};

use rushmem_test_support::api_common::place::hosts;
use rushmem_test_support::reports::reports;

use host::HOST;

const HEAD: &str = include_str!("../kernels/races.h");
const SOURCES: [(&str, &str); 5] = [
    ("races.cu", include_str!("../kernels/races.cu")),
    ("races_nbi.cu", include_str!("../kernels/races_nbi.cu")),
    ("races_together.cu", include_str!("../kernels/races_together.cu")),
    ("races_packets.cu", include_str!("../kernels/races_packets.cu")),
    ("races_scopes.cu", include_str!("../kernels/races_scopes.cu")),
];
/// Which of them has the host's kernels.
const TOGETHER: usize = 2;
const WORDS: usize = 1024;
const FLAGS: usize = 16;

/// The symmetric memory of one program.
struct Memory<'w> {
    world: &'w World,
    data: SymSlice<'w, i32>,
    src: SymSlice<'w, i32>,
    flags: Signals<'w>,
}

impl<'w> Memory<'w> {
    fn new(world: &'w World) -> Memory<'w> {
        let ints = || world.alloc::<i32>(WORDS).unwrap();
        Memory { world, data: ints(), src: ints(), flags: world.signals(FLAGS).unwrap() }
    }

    fn flag(&self, i: usize) -> SignalRef<'_> {
        self.flags.at(i).unwrap()
    }

    fn free(self) {
        self.data.free().unwrap();
        self.src.free().unwrap();
        self.flags.free().unwrap();
    }

    /// One block of each, one after the other on one stream.
    fn launch(&self, module: &Module<'_>, kernels: &[&str]) {
        for name in kernels {
            let args = (&self.data, &self.src, self.flags.words());
            // SAFETY: the kernels stay in these arrays.
            unsafe { module.kernel(name).unwrap().launch(Launch::new(1, 64), args) }.unwrap();
        }
    }

    fn start(&self, kernel: &Kernel<'_>, stream: &rushmem::Stream<'_>) {
        let args = (&self.data, &self.src, self.flags.words());
        // SAFETY: the kernels stay in these arrays.
        unsafe { kernel.launch_on(Launch::new(2, 64), args, stream) }.unwrap();
    }

    /// Kernels one after the other on one stream, each of which may start while the one before it ends.
    fn start_early(&self, module: &Module<'_>, kernels: &[&str]) {
        let stream = self.world.default_stream();
        for name in kernels {
            let args = (&self.data, &self.src, self.flags.words());
            let kernel = module.kernel(name).unwrap();
            // SAFETY: the kernels stay in these arrays; the wait that one lacks is the test's.
            unsafe { kernel.launch_on(Launch::new(1, 64).early(), args, &stream) }.unwrap();
        }
        stream.synchronize().unwrap();
    }
}

/// Where nobody is mapped, one does not reach its line, and one thread posts a block's put.
const NOT_FAR: [&str; 2] = ["store_through_ptr", "one_fences_for_all"];

/// Puts to near PEs are there on return, in order.
const NOT_NEAR: [&str; 5] = [
    "puts_to_one_place",
    "strided_put_over_put",
    "put_behind_nbi_put",
    "host_puts_to_one_place",
    "stream_puts_to_one_place",
];

/// Kernels with a mistake, of one source.
fn planted(source: &'static str) -> impl Iterator<Item = &'static str> {
    let names = source.lines().filter_map(|line| line.strip_prefix("KERNEL ")?.split_once("_bad("));
    names.map(|(name, _)| name)
}

/// One PE's part of all programs. Which begins is said on standard error, among the reports.
fn all(world: &World) {
    let load = |(name, text): (&str, &str)| {
        let (before, after) = text.split_once("#include \"races.h\"\n").unwrap();
        let next = before.lines().count() + 2;
        let whole = format!("{before}{HEAD}#line {next} \"{name}\"\n{after}");
        world.load(Source::text(whole).name(name)).unwrap()
    };
    let modules = SOURCES.map(load);
    let stream = world.default_stream();
    let begin = |name: &str, end: &str| {
        world.barrier_all().unwrap();
        eprintln!("PROGRAM {name}{end}");
        world.barrier_all().unwrap();
    };
    for (bad, end) in [(true, "_bad"), (false, "_good")] {
        for (module, (_, source)) in modules.iter().zip(SOURCES) {
            for name in planted(source) {
                let memory = Memory::new(world);
                let kernel = module.kernel(&format!("{name}{end}")).unwrap();
                begin(name, end);
                let blocks = if name.contains("block") { 2 } else { 1 };
                let args = (&memory.data, &memory.src, memory.flags.words());
                // SAFETY: the kernels stay in these arrays.
                unsafe { kernel.launch_on(Launch::new(blocks, 64), args, &stream) }.unwrap();
                stream.synchronize().unwrap();
                world.barrier_all().unwrap();
                memory.free();
            }
        }
        for (name, _, program) in &HOST {
            let memory = Memory::new(world);
            begin(name, end);
            program(&memory, &modules[TOGETHER], bad);
            world.synchronize().unwrap();
            world.barrier_all().unwrap();
            memory.free();
        }
    }
    begin("end", "");
}

/// What a report of this program must say: the place of each marked line, or names.
fn wanted(program: &str) -> Vec<String> {
    let (file, source) = *SOURCES
        .iter()
        .find(|(_, source)| source.contains(&format!("KERNEL {program}_bad(")))
        .unwrap_or(&SOURCES[TOGETHER]);
    let number = |i: usize| format!("{file}:{}", i + 1);
    let lines: Vec<&str> = source.lines().collect();
    if let Some((_, names, _)) = HOST.iter().find(|host| host.0 == program) {
        let place = |name: &&str| {
            let marked = lines.iter().position(|line| name.starts_with("//") && line.ends_with(name));
            marked.map_or(name.to_string(), number)
        };
        return names.iter().map(place).collect();
    }
    let start = lines.iter().position(|line| line.starts_with(&format!("KERNEL {program}_bad("))).unwrap();
    let end = lines[start..].iter().position(|line| line.starts_with('}')).unwrap();
    (start..start + end).filter(|&i| lines[i].ends_with("// race")).map(number).collect()
}

fn judge(outcomes: &[Outcome], far: bool) {
    let said = || outcomes.iter().map(|o| format!("{}: {}\n{}\n{}", o.pe, o.exit, o.stdout, o.stderr));
    let found = reports(outcomes, &["data race"]);
    assert!(found.contains_key("end"), "{}", said().collect::<String>());
    let mut wrong = Vec::new();
    let programs =
        SOURCES.iter().flat_map(|(_, source)| planted(source)).chain(HOST.iter().map(|host| host.0));
    let mut count = 0;
    for program in programs {
        count += 1;
        let (bad, good) = (&found[&format!("{program}_bad")], &found[&format!("{program}_good")]);
        let wanted = wanted(program);
        let whole = |text: &String| wanted.iter().all(|place| text.contains(place));
        let planted = !if far { NOT_FAR.contains(&program) } else { NOT_NEAR.contains(&program) };
        if planted && !bad.iter().any(whole) {
            wrong.push(format!("{program} has a race, {wanted:?}, which was not found:\n{}", bad.join("\n")));
        }
        if !good.is_empty() {
            wrong.push(format!("{program} has no race without its mistake:\n{}", good.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count >= 40, "{count} programs");
    assert!(outcomes.iter().all(|o| o.exit == Exit::Done), "{}", said().collect::<String>());
    assert!(
        outcomes.iter().any(|o| o.stderr.contains("found by RUSHMEM_CHECK")),
        "{}",
        said().collect::<String>()
    );
}

fn job() -> testing::Pes {
    let job = testing::pes(2).timeout(Duration::from_secs(200)).env("RUSHMEM_DEVICE", "cpu");
    job.env("RUSHMEM_CHECK", "races").env("RUSHMEM_LOG", "")
}

#[test]
fn every_planted_race_is_found_and_no_other() {
    job()
        .env("RUSHMEM_TRANSPORT", "auto")
        .supervise(|_| all(&World::init().unwrap()), |job| judge(&job.outcomes(), false));
}

/// PEs that cannot map each other's memory: each is a node of its own.
#[test]
fn the_same_between_far_pes() {
    let Some(pes) = hosts("the_same_between_far_pes", 2, 1) else { return };
    let pes = pes.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_CHECK", "races").env("RUSHMEM_LOG", "");
    pes.timeout(Duration::from_secs(200))
        .supervise(|_| all(&World::init().unwrap()), |job| judge(&job.outcomes(), true));
}
