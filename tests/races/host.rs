//! Programs of the host's: streams, events, puts and collectives of the host, and kernels beside them.

use std::time::Duration;

use rushmem::{Cmp, Launch, Module, Pe, SignalOp};

use crate::Memory;

/// Programs of the host: a name, what is asked of the report, and the program, with its mistake or without.
pub(crate) type HostProgram = (&'static str, [&'static str; 2], fn(&Memory<'_>, &Module<'_>, bool));

pub(crate) const HOST: [HostProgram; 31] = [
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
    // Kernels that are launched early use nothing that the one before them does until they have waited for
    // it, also where that one was early itself, or each thread uses what it has used there.
    ("early_before_the_wait", ["// reads", "// writes early"], |m, module, bad| {
        m.start_early(module, &["reads", if bad { "writes_early" } else { "waits_and_writes" }]);
    }),
    ("early_behind_early", ["// waits and writes", "// reads early"], |m, module, bad| {
        let last = if bad { "reads_early" } else { "waits_and_reads" };
        m.start_early(module, &["reads", "waits_and_writes", last]);
    }),
    ("one_waits_for_the_stream", ["// reads", "// writes behind one"], |m, module, bad| {
        m.start_early(module, &["reads", if bad { "one_waits" } else { "one_waits_for_all" }]);
    }),
    // What the host did before the launch is before the kernel in any case.
    ("early_under_the_hosts_put", ["host, put", "// writes early"], |m, module, bad| {
        if !bad {
            m.data.write(&[3; 64]).unwrap();
        }
        m.start_early(module, &["touches_nothing"]);
        let args = (&m.data, &m.src, m.flags.words());
        let kernel = module.kernel("writes_early").unwrap();
        let stream = m.world.default_stream();
        // SAFETY: the kernel stays in these arrays, and nothing before it is under way there.
        unsafe { kernel.launch_on(Launch::new(1, 64).early(), args, &stream) }.unwrap();
        if bad {
            m.data.write(&[3; 64]).unwrap();
        }
        stream.synchronize().unwrap();
    }),
];
