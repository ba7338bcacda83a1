//! `RUSHMEM_CHECK=races`: small programs of two PEs with one mistake each, which is reported with both lines,
//! and their twins without, in silence. PEs are processes, threads, and far from one another.

use std::time::Duration;

use rushmem::testing::{self, Exit, Outcome};
use rushmem::{Cmp, Kernel, Launch, Module, Pe, SignalOp, SignalRef, Signals, Source, SymSlice, World};

use rushmem_test_support::api_common::place::hosts;
use rushmem_test_support::reports::reports;

const HEAD: &str = include_str!("kernels/races.h");
const SOURCES: [(&str, &str); 5] = [
    ("races.cu", include_str!("kernels/races.cu")),
    ("races_nbi.cu", include_str!("kernels/races_nbi.cu")),
    ("races_together.cu", include_str!("kernels/races_together.cu")),
    ("races_packets.cu", include_str!("kernels/races_packets.cu")),
    ("races_scopes.cu", include_str!("kernels/races_scopes.cu")),
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
}

/// Programs of the host: a name, what is asked of the report, and the program, with its mistake or without.
type HostProgram = (&'static str, [&'static str; 2], fn(&Memory<'_>, &Module<'_>, bool));

const HOST: [HostProgram; 27] = [
    ("host_writes_under_kernel", ["// reads", "host, put"], |m, module, bad| {
        let stream = m.world.default_stream();
        m.start(&module.kernel("reads").unwrap(), &stream);
        if !bad {
            stream.synchronize().unwrap();
        }
        m.data.write(&[3; 64]).unwrap();
    }),
    ("host_reads_under_kernel", ["// writes", "host, get"], |m, module, bad| {
        let stream = m.world.default_stream();
        m.start(&module.kernel("reads").unwrap(), &stream);
        stream.synchronize().unwrap();
        let one = Launch::new(1, 64);
        let args = (&m.data, &m.src, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("writes").unwrap().launch(one, args) }.unwrap();
        if !bad {
            m.world.synchronize().unwrap();
        }
        m.data.to_vec().unwrap();
    }),
    ("two_streams", ["// reads", "// writes"], |m, module, bad| {
        let (a, b) = (m.world.stream().unwrap(), m.world.stream().unwrap());
        m.start(&module.kernel("reads").unwrap(), &a);
        if !bad {
            a.record().unwrap().wait().unwrap();
        }
        let args = (&m.data, &m.src, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("writes").unwrap().launch_on(Launch::new(1, 64), args, &b) }.unwrap();
        a.synchronize().unwrap();
        b.synchronize().unwrap();
        a.destroy().unwrap();
        b.destroy().unwrap();
    }),
    ("event_of_another", ["// reads", "// writes behind"], |m, module, bad| {
        let (a, b) = (m.world.stream().unwrap(), m.world.stream().unwrap());
        let early = a.record().unwrap();
        m.start(&module.kernel("reads").unwrap(), &a);
        let late = a.record().unwrap();
        if bad { early.wait() } else { late.wait() }.unwrap();
        let args = (&m.data, &m.src, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("writes_behind").unwrap().launch_on(Launch::new(1, 64), args, &b) }.unwrap();
        m.world.synchronize().unwrap();
        a.destroy().unwrap();
        b.destroy().unwrap();
    }),
    ("put_under_kernel", ["// reads", "host, put"], |m, module, bad| {
        let stream = m.world.default_stream();
        m.start(&module.kernel("reads").unwrap(), &stream);
        stream.synchronize().unwrap();
        if !bad {
            m.world.barrier_all().unwrap();
        }
        m.data.put(&[1; 64], m.world.right()).unwrap();
    }),
    ("missing_barrier_on_host", ["host, put", "host, get"], |m, _, bad| {
        m.data.put(&[1; 64], m.world.right()).unwrap();
        if !bad {
            m.world.barrier_all().unwrap();
        }
        m.data.to_vec().unwrap();
    }),
    ("host_signal_without_fence", ["host, put", "host, get"], |m, _, bad| {
        if m.world.my_pe() == Pe::new(0) {
            m.data.put(&[1; 64], Pe::new(1)).unwrap();
            if !bad {
                m.world.fence().unwrap();
            }
            m.flag(0).set(1, Pe::new(1)).unwrap();
        } else {
            m.flag(0).wait_until(Cmp::Eq, 1).unwrap();
            m.data.to_vec().unwrap();
        }
    }),
    // An update that answers is done when it returns, one that does not when a fence says so.
    ("host_update_without_answer", ["host, atomic", "host, get"], |m, _, bad| {
        if m.world.my_pe() == Pe::new(0) {
            let word = m.data.at(3, Pe::new(1));
            if bad { word.inc() } else { word.fetch_inc().map(drop) }.unwrap();
            m.flag(0).set(1, Pe::new(1)).unwrap();
        } else {
            m.flag(0).wait_until(Cmp::Eq, 1).unwrap();
            m.data.to_vec().unwrap();
        }
    }),
    // By two lines: a pair of them is reported once.
    ("host_nbi_puts_to_one_place", ["host, put", "host, put"], |m, _, bad| {
        m.data.put_from_nbi(&m.src, m.world.right()).unwrap();
        if !bad {
            m.world.fence().unwrap();
        }
        m.data.put_from_nbi(&m.src, m.world.right()).unwrap();
        m.world.quiet().unwrap();
    }),
    ("host_puts_to_one_place", ["host, put", "host, put"], |m, _, bad| {
        m.data.put(&[1; 64], m.world.right()).unwrap();
        if !bad {
            m.world.fence().unwrap();
        }
        m.data.put(&[2; 64], m.world.right()).unwrap();
    }),
    ("stream_puts_to_one_place", ["stream, put", "stream, put"], |m, _, bad| {
        let stream = m.world.default_stream();
        for i in 0..2 {
            m.data.put_from_on(&m.src, m.world.right(), &stream).unwrap();
            if i == 0 && !bad {
                m.world.fence_on(&stream).unwrap();
            }
        }
        stream.synchronize().unwrap();
    }),
    ("host_put_signal_unawaited", ["host, put_signal", "host, get"], |m, _, bad| {
        if m.world.my_pe() == Pe::new(0) {
            m.data.put_signal(&[1; 64], &m.flag(0), SignalOp::Set, 1, Pe::new(1)).unwrap();
        } else {
            if !bad {
                m.flag(0).wait_until(Cmp::Eq, 1).unwrap();
            }
            m.data.to_vec().unwrap();
        }
    }),
    ("stream_source_changed", ["stream, put", "host, put"], |m, _, bad| {
        let stream = m.world.default_stream();
        stream.put(&m.data, &m.src, m.world.right()).unwrap();
        if !bad {
            stream.synchronize().unwrap();
        }
        m.src.write(&[1; 8]).unwrap();
        stream.synchronize().unwrap();
    }),
    ("kernel_puts_host_reads", ["// sends", "host, get"], |m, module, bad| {
        let args = (&m.data, &m.src, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("sends").unwrap().launch(Launch::new(1, 64), args) }.unwrap();
        m.world.synchronize().unwrap();
        if !bad {
            m.world.barrier_all().unwrap();
        }
        m.data.to_vec().unwrap();
    }),
    ("sync_before_the_stream", ["// sends", "// reads"], |m, module, bad| {
        let stream = m.world.default_stream();
        let args = (&m.data, &m.src, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("sends").unwrap().launch(Launch::new(1, 64), args) }.unwrap();
        if bad {
            m.world.barrier_all().unwrap();
        } else {
            m.world.barrier_all_on(&stream).unwrap();
        }
        m.start(&module.kernel("reads").unwrap(), &stream);
        stream.synchronize().unwrap();
    }),
    // A stream's barrier completes what is before it there; the host's own, or a sync, does not.
    ("sync_for_a_barrier_on_a_stream", ["stream, put", "host, get"], |m, _, bad| {
        let stream = m.world.default_stream();
        m.data.put_from_on(&m.src, m.world.right(), &stream).unwrap();
        if bad { m.world.sync_all_on(&stream) } else { m.world.barrier_all_on(&stream) }.unwrap();
        stream.synchronize().unwrap();
        m.data.to_vec().unwrap();
    }),
    // Calls so large that they are puts where members are far; what they have put is there on return.
    ("large_collectives_of_a_stream", ["stream, put", "host, get"], |m, _, bad| {
        let (stream, team) = (m.world.default_stream(), m.world.team());
        let [dst, src] = [(); 2].map(|()| m.world.alloc::<i32>(12_000).unwrap());
        let [to, from] = [&dst, &src].map(|all| all.slice(0..6000).unwrap());
        stream.reduce(&team, &to, &from, rushmem::Sum).unwrap();
        stream.synchronize().unwrap();
        dst.to_vec().unwrap();
        stream.fcollect(&team, &dst, &from).unwrap();
        stream.synchronize().unwrap();
        dst.to_vec().unwrap();
        stream.alltoall(&team, &dst, &src).unwrap();
        stream.broadcast(&team, &to, &from, 0).unwrap();
        if bad {
            m.data.put_from_on(&m.src, m.world.right(), &stream).unwrap();
            m.world.sync_all_on(&stream).unwrap();
        }
        stream.synchronize().unwrap();
        dst.to_vec().unwrap();
        m.data.to_vec().unwrap();
        dst.free().unwrap();
        src.free().unwrap();
    }),
    ("reduce_under_kernel", ["// writes", "host, the source"], |m, module, bad| {
        let args = (&m.src, &m.data, m.flags.words());
        // SAFETY: the kernel stays in these arrays.
        unsafe { module.kernel("writes").unwrap().launch(Launch::new(1, 64), args) }.unwrap();
        if !bad {
            m.world.synchronize().unwrap();
        }
        m.world.team().reduce(&m.data, &m.src, rushmem::Sum).unwrap();
    }),
    ("launches_meet_apart", ["// is written", "// is written"], |m, module, bad| {
        let (a, b) = (m.world.stream().unwrap(), m.world.stream().unwrap());
        m.start(&module.kernel("meets").unwrap(), &a);
        if !bad {
            a.record().unwrap().wait().unwrap();
        }
        m.start(&module.kernel("meets").unwrap(), &b);
        m.world.synchronize().unwrap();
        a.destroy().unwrap();
        b.destroy().unwrap();
    }),
    ("team_barrier_too_early", ["host, put", "host, get"], |m, _, bad| {
        let team = m.world.team().split(Some(0), 0).unwrap().unwrap();
        if bad {
            team.barrier().unwrap();
        }
        m.data.put(&[1; 64], m.world.right()).unwrap();
        if !bad {
            team.barrier().unwrap();
        }
        m.data.to_vec().unwrap();
        team.free().unwrap();
    }),
    // The sender's team and the reader's are two, of one number.
    ("barriers_of_two_teams", ["host, put", "host, get"], |m, _, bad| {
        let me = u32::try_from(m.world.my_pe().index()).unwrap();
        let team = m.world.team().split(Some(if bad { me } else { 0 }), 0).unwrap().unwrap();
        if me == 0 {
            m.data.put(&[1; 64], m.world.right()).unwrap();
        }
        team.barrier().unwrap();
        if me == 1 {
            if bad {
                // As it may happen: the sender's barrier is over by now.
                std::thread::sleep(Duration::from_millis(200));
                team.barrier().unwrap();
                team.barrier().unwrap();
            }
            m.data.to_vec().unwrap();
        }
        team.free().unwrap();
    }),
    // A member reads more than what members have put.
    ("read_beyond_the_team", ["host, put", "host, get"], |m, _, bad| {
        let me = u32::try_from(m.world.my_pe().index()).unwrap();
        let team = m.world.team().split(Some(me), 0).unwrap().unwrap();
        let (own, other) = (m.data.slice(0..64).unwrap(), m.data.slice(64..128).unwrap());
        if me == 0 {
            other.put(&[1; 64], m.world.right()).unwrap();
        } else {
            own.put(&[2; 64], m.world.my_pe()).unwrap();
        }
        team.barrier().unwrap();
        if me == 1 {
            if bad { &m.data } else { &own }.to_vec().unwrap();
        }
        team.free().unwrap();
    }),
    ("reduced_then_put", ["host, put", "host, get"], |m, _, bad| {
        m.world.team().reduce(&m.data, &m.src, rushmem::Sum).unwrap();
        m.data.to_vec().unwrap();
        if !bad {
            m.world.barrier_all().unwrap();
        }
        m.data.put(&[1; 64], m.world.right()).unwrap();
    }),
    // A kernel's start and its end are fences, for packets, too.
    ("packet_of_one_kernel", ["// puts and tells", "// takes"], |m, module, bad| {
        m.launch(module, if bad { &["puts_and_tells"] } else { &["puts_first", "tells"] });
        m.launch(module, &["hears", "takes"]);
    }),
    ("packet_heard_in_one_kernel", ["// puts first", "// hears and takes"], |m, module, bad| {
        m.launch(module, &["puts_first", "tells"]);
        m.launch(module, if bad { &["hears_and_takes"] } else { &["hears", "takes"] });
    }),
    // What lies between the places of a collective is not the call's.
    ("put_on_places_of_alltoalls", ["stream, p", "the destination"], |m, _, bad| {
        if m.world.my_pe().index() == 0 {
            m.data.p_on(if bad { 2 } else { 3 }, 1, m.world.right(), &m.world.default_stream()).unwrap();
        }
        m.world.team().alltoalls(&m.data, &m.src, 2, 1, 4).unwrap();
    }),
    // By another operation: a pair of places is reported once, and a stream's have no lines.
    ("put_on_places_of_alltoallv", ["stream, put", "the destination"], |m, _, bad| {
        if m.world.my_pe().index() == 0 {
            let at = if bad { 10 } else { 5 };
            let (to, from) = (m.data.slice(at..at + 2).unwrap(), m.src.slice(0..2).unwrap());
            to.put_from_on(&from, m.world.right(), &m.world.default_stream()).unwrap();
        }
        m.world.team().alltoallv(&m.data, &[0, 8], &m.src, &[0, 4], &[4; 2]).unwrap();
    }),
];

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
