//! `RUSHMEM_CHECK=1`: small programs of two PEs with one mistake each, which is reported with its line, and
//! their twins without, in silence. PEs are processes, and far from one another.

use std::time::Duration;

use rushmem::testing::{self, Exit, Outcome};
use rushmem::{Launch, Source, SymSlice, World};

use rushmem_test_support::api_common::place::hosts;
use rushmem_test_support::reports::reports;

const NAME: &str = "checked.cu";
const SOURCE: &str = include_str!("kernels/checked.cu");
const INTS: usize = 1000;
const FLAGS: usize = 16;
const THREADS: u32 = 64;
const SHARED: usize = 256;

/// The symmetric memory of one program.
struct Memory<'w> {
    data: SymSlice<'w, i32>,
    src: SymSlice<'w, i32>,
}

/// Programs of the host: a name, what is asked of the report, and the program, with its mistake or without.
type HostProgram = (&'static str, [&'static str; 3], fn(&World, &Memory<'_>, bool));

const HOST: [HostProgram; 7] = [
    (
        "source_of_an_nbi_put_changed",
        [REUSED, "reads, at any time until a quiet", "host, put"],
        |world, m, bad| {
            m.src.write(&[1; 8]).unwrap();
            m.data.put_from_nbi(&m.src, world.right()).unwrap();
            if !bad {
                world.quiet().unwrap();
            }
            m.src.write(&[2; 8]).unwrap();
            world.quiet().unwrap();
        },
    ),
    (
        "source_of_an_nbi_put_put_to",
        [REUSED, "reads, at any time until a quiet", "host, put"],
        |world, m, bad| {
            m.src.put(&[1; 8], world.my_pe()).unwrap();
            m.data.put_from_nbi(&m.src, world.right()).unwrap();
            if !bad {
                world.quiet().unwrap();
            }
            m.src.put(&[2; 8], world.my_pe()).unwrap();
            world.quiet().unwrap();
        },
    ),
    (
        "target_of_an_nbi_get_read",
        [REUSED, "writes, at any time until a quiet", "host, get"],
        |world, m, bad| {
            m.src.to_vec().unwrap();
            m.data.get_into_nbi(&m.src, world.right()).unwrap();
            if !bad {
                world.quiet().unwrap();
            }
            m.src.to_vec().unwrap();
            world.quiet().unwrap();
        },
    ),
    ("source_of_a_put_on_a_stream_changed", [REUSED, "stream, put", "host, put"], |world, m, bad| {
        let stream = world.default_stream();
        stream.put(&m.data, &m.src, world.right()).unwrap();
        if !bad {
            stream.synchronize().unwrap();
        }
        m.src.write(&[1; 8]).unwrap();
        stream.synchronize().unwrap();
    }),
    ("target_of_a_get_on_a_stream_read", [REUSED, "stream, get", "host, get"], |world, m, bad| {
        let stream = world.default_stream();
        stream.get(&m.src, &m.data, world.right()).unwrap();
        if !bad {
            stream.synchronize().unwrap();
        }
        m.src.to_vec().unwrap();
        stream.synchronize().unwrap();
    }),
    ("target_of_a_collective_on_a_stream_read", [REUSED, "rushmem_stream_", "host, get"], |world, m, bad| {
        let stream = world.default_stream();
        stream.broadcast(&world.team(), &m.data, &m.src, 0).unwrap();
        if !bad {
            stream.synchronize().unwrap();
        }
        m.data.to_vec().unwrap();
        stream.synchronize().unwrap();
    }),
    (
        "source_of_a_collective_on_a_stream_changed",
        [REUSED, "rushmem_stream_", "host, put"],
        |world, m, bad| {
            let stream = world.default_stream();
            stream.broadcast(&world.team(), &m.data, &m.src, 0).unwrap();
            if !bad {
                stream.synchronize().unwrap();
            }
            m.src.write(&[1; INTS]).unwrap();
            stream.synchronize().unwrap();
        },
    ),
];

const REUSED: &str = "buffer reused before its operation was complete";

/// What is said of a line with this mark.
const KINDS: [(&str, &str); 7] = [
    ("// bounds", "out of bounds"),
    ("// freed", "use after free"),
    ("// unwritten", "read of memory that was never written"),
    ("// misaligned", "misaligned word"),
    ("// scope", "not all threads of a scope make a call together"),
    ("// lane", "a shuffle from a lane that takes no part in it"),
    ("// reused", REUSED),
];

/// What the host of a PE far away refuses, which ends the job: the report comes before.
const ENDS_FAR: [&str; 2] = ["remote_atomic_on_half_a_word", "signal_on_half_a_word"];

/// Programs with a mistake.
fn planted() -> impl Iterator<Item = &'static str> {
    SOURCE.lines().filter_map(|line| Some(line.strip_prefix("KERNEL ")?.split_once("_bad(")?.0))
}

/// Those that run there.
fn programs(far: bool) -> impl Iterator<Item = &'static str> {
    planted().filter(move |name| !(far && ENDS_FAR.contains(name)))
}

/// One PE's part of all programs. Which begins is said on standard error, among the reports.
fn all(world: &World, far: bool) {
    let module = world.load(Source::text(SOURCE).name(NAME)).unwrap();
    let stream = world.default_stream();
    let begin = |name: &str, end: &str| {
        world.barrier_all().unwrap();
        eprintln!("PROGRAM {name}{end}");
        world.barrier_all().unwrap();
    };
    for end in ["_bad", "_good"] {
        for name in programs(far) {
            let ints = || world.alloc::<i32>(INTS).unwrap();
            let (src, data, gone) = (ints(), ints(), ints());
            let flags = world.signals(FLAGS).unwrap();
            let lost = gone.as_ptr();
            gone.free().unwrap();
            let kernel = module.kernel(&format!("{name}{end}")).unwrap();
            begin(name, end);
            let args = (&data, &src, flags.words(), lost);
            let launch = Launch::new(1, THREADS).shared_bytes(SHARED);
            // SAFETY: what the mistakes touch is the heap's, if no allocation's, or beside shared memory,
            // where a checked run has room.
            unsafe { kernel.launch_on(launch, args, &stream) }.unwrap();
            stream.synchronize().unwrap_or_else(|error| panic!("{name}{end}: {error}"));
            world.barrier_all().unwrap();
            data.free().unwrap();
            src.free().unwrap();
            flags.free().unwrap();
        }
        for (name, _, program) in &HOST {
            let ints = || world.alloc::<i32>(INTS).unwrap();
            let memory = Memory { data: ints(), src: ints() };
            begin(name, end);
            program(world, &memory, end == "_bad");
            world.barrier_all().unwrap();
            memory.data.free().unwrap();
            memory.src.free().unwrap();
        }
    }
    begin("end", "");
}

/// What a report of this program must say: its kind, and the place of each marked line.
fn wanted(program: &str) -> Vec<String> {
    if let Some((_, parts, _)) = HOST.iter().find(|host| host.0 == program) {
        return parts.map(str::to_owned).to_vec();
    }
    let lines: Vec<&str> = SOURCE.lines().collect();
    let head = format!("KERNEL {program}_bad(");
    let start = lines.iter().position(|line| line.starts_with(&head)).unwrap();
    let end = (start..).find(|&i| lines[i].ends_with('}') && !lines[i].starts_with(' ')).unwrap();
    let marked =
        |i: &usize| KINDS.iter().find(|(mark, _)| lines[*i].contains(mark)).map(|(_, kind)| (*i, *kind));
    let found: Vec<(usize, &str)> = (start..=end).filter_map(|i| marked(&i)).collect();
    assert!(!found.is_empty(), "{program} has no mark");
    let places = found.iter().map(|(i, _)| format!("{NAME}:{}", i + 1));
    places.chain([found[0].1.to_owned()]).collect()
}

fn judge(outcomes: &[Outcome], far: bool) {
    let said = || outcomes.iter().map(|o| format!("{}: {}\n{}\n{}", o.pe, o.exit, o.stdout, o.stderr));
    let heads: Vec<&str> = KINDS.iter().map(|(_, head)| *head).chain(["data race"]).collect();
    let found = reports(outcomes, &heads);
    assert!(found.contains_key("end"), "{}", said().collect::<String>());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for program in programs(far).chain(HOST.iter().map(|host| host.0)) {
        count += 1;
        let (bad, good) = (&found[&format!("{program}_bad")], &found[&format!("{program}_good")]);
        let wanted = wanted(program);
        if !bad.iter().any(|text| wanted.iter().all(|part| text.contains(part))) {
            wrong.push(format!("{program} has a mistake, {wanted:?}, but not found:\n{}", bad.join("\n")));
        }
        if !good.is_empty() {
            wrong.push(format!("{program} has none without its mistake:\n{}", good.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(count >= 40, "{count} programs");
    assert!(outcomes.iter().all(|o| o.exit == Exit::Done), "{}", said().collect::<String>());
}

#[test]
fn every_planted_mistake_is_found_and_no_other() {
    let job = testing::pes(2).timeout(Duration::from_secs(200)).env("RUSHMEM_DEVICE", "cpu");
    let job = job.env("RUSHMEM_CHECK", "1").env("RUSHMEM_LOG", "").env("RUSHMEM_TRANSPORT", "auto");
    job.supervise(|_| all(&World::init().unwrap(), false), |job| judge(&job.outcomes(), false));
}

/// PEs that cannot map each other's memory: each is a node of its own.
#[test]
fn mistakes_between_far_pes_are_found() {
    let Some(pes) = hosts("mistakes_between_far_pes_are_found", 2, 1) else { return };
    let pes = pes.env("RUSHMEM_DEVICE", "cpu").env("RUSHMEM_CHECK", "1").env("RUSHMEM_LOG", "");
    pes.timeout(Duration::from_secs(200))
        .supervise(|_| all(&World::init().unwrap(), true), |job| judge(&job.outcomes(), true));
}

/// One PE's part of calls with equal arguments, and of one of others, which may end its launch.
fn unequal(world: &World, name: &str) {
    let module = world.load(Source::text(SOURCE).name(NAME)).unwrap();
    let (data, src) = (world.alloc::<i32>(INTS).unwrap(), world.alloc::<i32>(INTS).unwrap());
    let flags = world.signals(FLAGS).unwrap();
    for kernel in ["equal_arguments", name] {
        let kernel = module.kernel(kernel).unwrap();
        let args = (&data, &src, flags.words(), data.as_ptr());
        // SAFETY: the kernels stay in these arrays.
        unsafe { kernel.launch(Launch::new(1, THREADS), args) }.unwrap();
        if let Err(error) = world.synchronize() {
            println!("ENDED {name}: {error}");
        }
    }
}

/// Both members' lines are in one report, whether or not the launch ends by itself (two roots need not meet).
fn both_lines_are_named(name: &str) {
    let job = testing::pes(2).timeout(Duration::from_secs(60)).env("RUSHMEM_DEVICE", "cpu");
    let job = job.env("RUSHMEM_CHECK", "1").env("RUSHMEM_LOG", "").env("RUSHMEM_WAIT_TIMEOUT", "20");
    job.supervise(
        |_| unequal(&World::init().unwrap(), name),
        |job| {
            let outcomes = job.outcomes();
            let said: String = outcomes.iter().map(|o| format!("{}\n{}\n", o.stdout, o.stderr)).collect();
            let head = "a collective call with unequal arguments";
            assert_eq!(said.matches(head).count(), 1, "{name}:\n{said}");
            let lines = SOURCE.lines().enumerate();
            let lines = lines.skip_while(|(_, line)| !line.contains(&format!(" {name}(")));
            let lines = lines.take_while(|(_, line)| *line != "}");
            for (i, _) in lines.filter(|(_, line)| line.contains("// unequal")) {
                assert!(said.contains(&format!("{NAME}:{} in", i + 1)), "{name}:\n{said}");
            }
            assert!(said.contains("  PE 0, kernel") && said.contains("  PE 1, kernel"), "{name}:\n{said}");
        },
    );
}

#[test]
fn unequal_sizes_are_named_with_both_lines() {
    both_lines_are_named("unequal_size");
}

#[test]
fn unequal_roots_are_named_with_both_lines() {
    both_lines_are_named("unequal_root");
}

#[test]
fn unequal_operators_are_named_with_both_lines() {
    both_lines_are_named("unequal_operator");
}

#[test]
fn unequal_orders_of_calls_are_named_with_both_lines() {
    both_lines_are_named("unequal_order");
}
