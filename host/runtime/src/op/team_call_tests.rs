//! What the check of collectives on streams takes and refuses, and the instances that come of it.

use super::*;
use crate::error::code;
use rushmem_abi::reduction::REDUCED;

const GPU: Caller = Caller { me: 1, n: 4, gpu: true };
const CPU: Caller = Caller { gpu: false, ..GPU };

fn check(caller: Caller, call: TeamCall) -> Result<Option<TeamLaunch>> {
    call.check(caller, &|_, at, _| Ok(at))
}

fn reduction(of: &Reduced, op: Operator) -> TeamReduction {
    TeamReduction { of: of.code, op: op.code(), dst: 4096, src: 8192, n: 3 }
}

macro_rules! of {
    ($($name:ident $variant:ident),*) => {$(
        fn $name(r: TeamReduction) -> TeamCall {
            TeamCall::$variant { dst: r.dst, src: r.src, n: r.n, r#type: r.of, op: r.op }
        }
    )*};
}
of!(reduce Reduce, reducescatter Reducescatter, inscan Inscan, exscan Exscan);

#[test]
fn every_pair_that_makes_sense_is_a_kernel_that_nvcc_has_compiled() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kernels/stream_collectives.cu");
    let Ok(compiled) = std::fs::read_to_string(path) else {
        eprintln!(
            "SKIP every_pair_that_makes_sense_is_a_kernel_that_nvcc_has_compiled: the sources are not here"
        );
        return;
    };
    let mut kernels = 0;
    for (of, op) in REDUCED.iter().flat_map(|of| Operator::ALL.map(|op| (of, op))) {
        let launch = check(GPU, reduce(reduction(of, op)));
        if !op.takes(of.number) {
            assert_eq!(launch.unwrap_err().code, code::INVALID_ARGUMENT);
            continue;
        }
        if (of.name, op) == ("complexd", Operator::Prod) {
            assert_eq!(launch.unwrap_err().code, code::UNSUPPORTED);
            continue;
        }
        let launch = launch.unwrap().unwrap();
        let instance = launch.instance("rushmem::block");
        let words: Vec<&str> = launch.arguments.trim_start_matches(", ").split(", ").collect();
        let [word, operator] = words[..] else { panic!("{instance}") };
        let whole = match operator {
            "rushmem::and_" | "rushmem::or_" | "rushmem::xor_" => {
                compiled.contains(&format!("INTEGERS({word})"))
            }
            _ if word == "rushmem::complex<float>" => {
                compiled.contains(&format!("REDUCTION, {word}, {})", &operator["rushmem::".len()..]))
            }
            _ => ["INTEGERS", "FLOATS"].iter().any(|all| compiled.contains(&format!("\n{all}({word})"))),
        };
        assert!(whole, "{instance} is not in stream_collectives.cu");
        let parts = if of.name == "complexd" { 6 } else { 3 };
        assert_eq!((launch.values[2], launch.bytes), (parts, 3 * of.bytes as u64), "{instance}");
        kernels += 1;
    }
    assert_eq!(kernels, 8 * 7 + 4 * 4 + 3);
}

#[test]
fn what_moves_bytes_goes_in_the_widest_units_that_fit() {
    let unit = |caller, dst, src, bytes| {
        let launch = check(caller, TeamCall::Broadcast { dst, src, bytes, root: 3 }).unwrap().unwrap();
        (launch.instance("S"), launch.values[2])
    };
    let of = |bytes: usize| format!("rushmem_stream_broadcast<S, rushmem_element<{bytes}, {bytes}>>");
    assert_eq!(unit(GPU, 4096, 8192, 64), (of(16), 4));
    assert_eq!(unit(GPU, 4096, 8200, 64), (of(4), 16));
    assert_eq!(unit(GPU, 4096, 8192, 20), (of(4), 5));
    assert_eq!(unit(GPU, 4096, 8193, 64), (of(1), 64));
    assert_eq!(unit(CPU, 4096, 8192, 64), (of(1), 64));
    let collect =
        |dst| check(GPU, TeamCall::Collect { dst, src: 8192, elem_bytes: 12, n: 5 }).unwrap().unwrap();
    assert_eq!(collect(4096).arguments, ", rushmem_element<12, 4>");
    assert_eq!(collect(4098).arguments, ", rushmem_element<12, 1>");
}

#[test]
fn what_is_wrong_is_refused() {
    let float = REDUCED.iter().find(|of| of.name == "float").unwrap();
    let sum = TeamReduction { n: 100, ..reduction(float, Operator::Sum) };
    let (dst, src, bytes) = (4096, 8192, 64);
    let alltoalls = |dst_stride, src_stride| TeamCall::Alltoalls {
        dst,
        src,
        dst_stride,
        src_stride,
        elem_bytes: 4,
        n: 2,
    };
    for (call, code, text) in [
        (
            TeamCall::Broadcast { dst, src, bytes, root: 4 },
            code::BAD_PE,
            "the root is 4, and members are 0 to 3",
        ),
        (TeamCall::Broadcast { dst, src, bytes, root: -1 }, code::BAD_PE, "the root is -1"),
        (TeamCall::Broadcast { dst, src: 4100, bytes, root: 0 }, code::INVALID_ARGUMENT, "overlap"),
        (TeamCall::Fcollect { dst, src: 4096 + 128, bytes }, code::INVALID_ARGUMENT, "overlap"),
        (TeamCall::Alltoall { dst, src, bytes: usize::MAX / 2 }, code::INVALID_ARGUMENT, "address space"),
        (TeamCall::Collect { dst, src, elem_bytes: 0, n: 1 }, code::INVALID_ARGUMENT, "1 to 4096 bytes"),
        (alltoalls(0, 1), code::INVALID_ARGUMENT, "strides are at least 1"),
        (alltoalls(200, 1), code::INVALID_ARGUMENT, "overlap"),
        (reduce(TeamReduction { dst: 4098, ..sum }), code::INVALID_ARGUMENT, "aligned"),
        (inscan(TeamReduction { src: 4100, ..sum }), code::INVALID_ARGUMENT, "overlap"),
        (reducescatter(TeamReduction { src: 4096 - 1200, ..sum }), code::INVALID_ARGUMENT, "overlap"),
        (exscan(TeamReduction { op: 9, ..sum }), code::INVALID_ARGUMENT, "9 is no operator"),
        (reduce(TeamReduction { of: -1, ..sum }), code::INVALID_ARGUMENT, "-1 is no element type"),
    ] {
        let e = check(GPU, call).unwrap_err();
        assert!(e.code == code && e.message.contains(text), "{call:?}: {e}");
    }
    let lists = TeamCall::Alltoallv { dst, dst_at: 16, received: 0, src, src_at: 12, n: 16, elem_bytes: 8 };
    assert_eq!(check(GPU, lists).unwrap_err().code, code::INVALID_ARGUMENT);
}

#[test]
fn what_is_allowed_in_place_is_taken_and_nothing_is_nothing() {
    let float = REDUCED.iter().find(|of| of.name == "float").unwrap();
    let sum = TeamReduction { n: 16, dst: 8192, ..reduction(float, Operator::Sum) };
    let (dst, bytes) = (4096, 64);
    for call in [
        TeamCall::Broadcast { dst, src: dst, bytes, root: 0 },
        TeamCall::Fcollect { dst, src: dst + 64, bytes },
        TeamCall::Alltoall { dst, src: dst, bytes },
        reduce(sum),
        reducescatter(sum),
        exscan(sum),
        TeamCall::Sync {},
        TeamCall::Barrier {},
        // A member that has nothing takes part.
        TeamCall::Collect { dst, src: 0, elem_bytes: 4, n: 0 },
    ] {
        assert!(check(GPU, call).unwrap().is_some(), "{call:?}");
    }
    for call in [
        TeamCall::Broadcast { dst, src: 0, bytes: 0, root: 0 },
        TeamCall::Alltoall { dst: 0, src: 0, bytes: 0 },
        TeamCall::Alltoalls { dst, src: dst, dst_stride: 1, src_stride: 1, elem_bytes: 4, n: 0 },
        reduce(TeamReduction { n: 0, ..sum }),
    ] {
        assert_eq!(check(GPU, call).unwrap(), None, "{call:?}");
    }
}

#[test]
fn what_is_prepared_is_what_calls_ask_for() {
    let prepared = |name, op, what| -> Vec<String> {
        let calls = TeamCall::of_each_kind(name, op, what).unwrap();
        let instance = |call: TeamCall| {
            let launch = call.check(Caller { me: 0, n: 1, gpu: true }, &|_, at, _| Ok(at)).unwrap().unwrap();
            launch.instance("S")
        };
        calls.into_iter().map(instance).collect()
    };
    assert_eq!(prepared("reduce", 0, 4), ["rushmem_stream_reduce<S, float, rushmem::sum>"]);
    let unit = |n| format!("rushmem_stream_fcollect<S, rushmem_element<{n}, {n}>>");
    assert_eq!(prepared("fcollect", 0, 0), [unit(16), unit(4), unit(1)]);
    let element = |align| format!("rushmem_stream_alltoallv<S, rushmem_element<24, {align}>>");
    assert_eq!(prepared("alltoallv", 0, 24), [element(8), element(1)]);
    assert!(TeamCall::of_each_kind("gather", 0, 0).is_err());
}
