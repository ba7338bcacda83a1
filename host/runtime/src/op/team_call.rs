//! Collectives of a team in a stream's turn: what is asked, its check, and which kernel does it
//! (`device/src/collectives.cu`). Members compare nothing here: that kernels do, when they meet.

use std::ffi::c_void;

use super::{check_aligned, check_private};
use crate::error::{err, Result};
use rushmem_abi::reduction::{reduction, Number, Operator, Reduced};

/// A parameter of the C ABI, as calls hold it.
pub(crate) trait Argument {
    type Value;
    fn value(self) -> Self::Value;
}

macro_rules! arguments {
    ($($type:ty => $value:ty),*) => {$(
        impl Argument for $type {
            type Value = $value;
            #[inline]
            fn value(self) -> $value {
                self as $value
            }
        }
    )*};
}
arguments!(*mut c_void => usize, *const c_void => usize, *mut usize => usize, *const usize => usize);
arguments!(usize => usize, isize => isize, i32 => i32);

macro_rules! calls {
    ([] $(
        $kind:ident $name:ident $variant:ident ($dst:ident <- $src:ident) {
            device $header:literal $device:literal;
            $(#[$host_doc:meta])*
            host $host:ident = $host_symbol:ident($($host_arg:ident: $host_type:ty),*);
            $(#[$stream_doc:meta])*
            stream $stream:ident = $stream_symbol:ident($($stream_arg:ident: $stream_type:ty),*);
        }
    )*) => {
        /// A collective call: a variant for each row of the table, with what stands between the team, and the
        /// slot set and the stream.
        #[derive(Debug, Clone, Copy)]
        pub(crate) enum TeamCall {
            $($variant { $($stream_arg: <$stream_type as Argument>::Value),* },)*
        }

        impl TeamCall {
            /// As in its function's name.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(TeamCall::$variant { .. } => stringify!($name),)*
                }
            }

            $(
                /// The call with these arguments.
                pub(crate) fn $name($($stream_arg: $stream_type),*) -> TeamCall {
                    TeamCall::$variant { $($stream_arg: $stream_arg.value()),* }
                }
            )*
        }
    };
}
rushmem_abi::collectives!(calls);

/// The arguments of alltoallv.
#[derive(Debug, Clone, Copy)]
struct TeamBlocks {
    dst: usize,
    dst_at: usize,
    received: usize,
    src: usize,
    src_at: usize,
    n: usize,
    elem: usize,
}

/// The arguments of reductions and scans.
#[derive(Debug, Clone, Copy)]
struct TeamReduction {
    /// `RUSHMEM_FLOAT` and so on.
    of: i32,
    /// `RUSHMEM_SUM` and so on.
    op: i32,
    dst: usize,
    src: usize,
    n: usize,
}

/// A call that has been checked, as a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TeamLaunch {
    /// The kernel's template.
    pub(crate) template: &'static str,
    /// Its arguments behind the scope: `, float, rushmem::sum`.
    pub(crate) arguments: String,
    /// The kernel's parameters behind the team.
    pub(crate) values: Vec<u64>,
    /// The bytes by which the launch's width is chosen.
    pub(crate) bytes: u64,
}

/// Who calls: this member of so many, whose device is a GPU or the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) me: usize,
    pub(crate) n: usize,
    pub(crate) gpu: bool,
}

/// Where a range of this PE's memory is for a kernel: what it is called, its address and its length.
pub(crate) type Find<'a> = &'a dyn Fn(&'static str, usize, usize) -> Result<usize>;

impl TeamCall {
    /// Checks everything that can be checked. `None`: there is nothing to do, on any member.
    pub(crate) fn check(&self, team: Caller, find: Find<'_>) -> Result<Option<TeamLaunch>> {
        let name = self.name();
        match *self {
            TeamCall::Sync {} => Ok(Some(TeamLaunch::plain("rushmem_stream_sync"))),
            TeamCall::Barrier {} => Ok(Some(TeamLaunch::plain("rushmem_stream_barrier"))),
            TeamCall::Broadcast { dst, src, bytes, root } => {
                if usize::try_from(root).map_or(true, |root| root >= team.n) {
                    return Err(err!(BAD_PE, "the root is {root}, and members are 0 to {}", team.n - 1));
                }
                let (to, from) = (find("the destination", dst, bytes)?, find("the source", src, bytes)?);
                one_or_apart((dst, bytes), (src, bytes))?;
                Ok(moved(team, "rushmem_stream_broadcast", (to, from), bytes, bytes, &[root as u64]))
            }
            TeamCall::Fcollect { dst, src, bytes } => {
                let all = product(&[bytes, team.n])?;
                let (to, from) = (find("the destination", dst, all)?, find("the source", src, bytes)?);
                if src != dst.wrapping_add(team.me * bytes) {
                    apart((dst, all), (src, bytes))?;
                }
                Ok(moved(team, "rushmem_stream_fcollect", (to, from), bytes, all, &[]))
            }
            TeamCall::Alltoall { dst, src, bytes } => {
                let all = product(&[bytes, team.n])?;
                let (to, from) = (find("the destination", dst, all)?, find("the source", src, all)?);
                one_or_apart((dst, all), (src, all))?;
                Ok(moved(team, "rushmem_stream_alltoall", (to, from), bytes, all, &[]))
            }
            TeamCall::Collect { dst, src, elem_bytes: elem, n } => {
                check_element(name, elem)?;
                let bytes = product(&[elem, n])?;
                // What the others have goes before and behind it.
                let (to, from) = (find("the destination", dst, bytes)?, find("the source", src, bytes)?);
                Ok(Some(TeamLaunch {
                    template: "rushmem_stream_collect",
                    arguments: element(team, elem, to | from),
                    values: vec![to as u64, from as u64, n as u64],
                    bytes: 0,
                }))
            }
            TeamCall::Alltoalls { dst, src, dst_stride, src_stride, elem_bytes: elem, n } => {
                check_element(name, elem)?;
                let stride = |stride| usize::try_from(stride).ok().filter(|stride| *stride > 0);
                let (Some(dst_stride), Some(src_stride)) = (stride(dst_stride), stride(src_stride)) else {
                    return Err(err!(
                        INVALID_ARGUMENT,
                        "strides are at least 1, not {dst_stride} and {src_stride}"
                    ));
                };
                let count = product(&[n, team.n])?;
                let extent = |stride: usize| match count {
                    0 => Ok(0),
                    _ => product(&[count - 1, stride, elem])?.checked_add(elem).ok_or_else(too_long),
                };
                let (dst_bytes, src_bytes) = (extent(dst_stride)?, extent(src_stride)?);
                let (to, from) =
                    (find("the destination", dst, dst_bytes)?, find("the source", src, src_bytes)?);
                apart((dst, dst_bytes), (src, src_bytes))?;
                Ok((n > 0).then(|| TeamLaunch {
                    template: "rushmem_stream_alltoalls",
                    arguments: element(team, elem, to | from),
                    values: [to, from, dst_stride, src_stride, n].map(|value| value as u64).to_vec(),
                    bytes: (count * elem) as u64,
                }))
            }
            TeamCall::Alltoallv { dst, dst_at, received, src, src_at, n, elem_bytes: elem } => {
                TeamBlocks { dst, dst_at, received, src, src_at, n, elem }.check(team, find).map(Some)
            }
            TeamCall::Reduce { dst, src, n, r#type: of, op } => {
                TeamReduction { of, op, dst, src, n }.check("rushmem_stream_reduce", 1, find)
            }
            TeamCall::Reducescatter { dst, src, n, r#type: of, op } => {
                TeamReduction { of, op, dst, src, n }.check("rushmem_stream_reducescatter", team.n, find)
            }
            TeamCall::Inscan { dst, src, n, r#type: of, op } => {
                TeamReduction { of, op, dst, src, n }.check("rushmem_stream_inscan", 1, find)
            }
            TeamCall::Exscan { dst, src, n, r#type: of, op } => {
                TeamReduction { of, op, dst, src, n }.check("rushmem_stream_exscan", 1, find)
            }
        }
    }
}

impl TeamCall {
    /// Calls that need, between them, all kernels that calls of that name can need: with an element type and
    /// an operator for reductions and scans, else with an element of so many bytes.
    pub(crate) fn of_each_kind(name: &str, op: i32, what: usize) -> Result<Vec<TeamCall>> {
        let (dst, src, n) = (1 << 30, 1 << 31, 1);
        let r#type = i32::try_from(what).unwrap_or(-1);
        let units = |call: &dyn Fn(usize, usize) -> TeamCall| [16, 4, 1].map(|unit| call(dst, unit)).to_vec();
        let places = |call: &dyn Fn(usize) -> TeamCall| [dst, dst + 1].map(call).to_vec();
        let elem_bytes = what;
        Ok(match name {
            "sync" => vec![TeamCall::Sync {}],
            "barrier" => vec![TeamCall::Barrier {}],
            "broadcast" => units(&|dst, bytes| TeamCall::Broadcast { dst, src, bytes, root: 0 }),
            "fcollect" => units(&|dst, bytes| TeamCall::Fcollect { dst, src, bytes }),
            "alltoall" => units(&|dst, bytes| TeamCall::Alltoall { dst, src, bytes }),
            "collect" => places(&|dst| TeamCall::Collect { dst, src, elem_bytes, n }),
            "alltoalls" => {
                let (dst_stride, src_stride) = (1, 1);
                places(&|dst| TeamCall::Alltoalls { dst, src, dst_stride, src_stride, elem_bytes, n })
            }
            "alltoallv" => places(&|at| {
                let (dst_at, received, src_at, n) = (dst, dst, dst, dst);
                TeamCall::Alltoallv { dst: at, dst_at, received, src, src_at, n, elem_bytes }
            }),
            "reduce" => vec![TeamCall::Reduce { dst, src, n, r#type, op }],
            "reducescatter" => vec![TeamCall::Reducescatter { dst, src, n, r#type, op }],
            "inscan" => vec![TeamCall::Inscan { dst, src, n, r#type, op }],
            "exscan" => vec![TeamCall::Exscan { dst, src, n, r#type, op }],
            other => return Err(err!(INVALID_ARGUMENT, "`{other}` is no collective on streams")),
        })
    }
}

impl TeamLaunch {
    fn plain(template: &'static str) -> TeamLaunch {
        TeamLaunch { template, arguments: String::new(), values: Vec::new(), bytes: 0 }
    }

    /// The instance at that scope, as the compiler is asked for it.
    pub(crate) fn instance(&self, scope: &str) -> String {
        format!("{}<{scope}{}>", self.template, self.arguments)
    }
}

impl TeamBlocks {
    fn check(&self, team: Caller, find: Find<'_>) -> Result<TeamLaunch> {
        check_element("alltoallv", self.elem)?;
        let list = |what: &'static str, at: usize| {
            check_aligned(what, at, 8)?;
            find(what, at, 8 * team.n)
        };
        let lists = [
            list("the list of places in the destination", self.dst_at)?,
            if self.received == 0 { 0 } else { list("the list of what is received", self.received)? },
            list("the list of places in the source", self.src_at)?,
            list("the list of numbers", self.n)?,
        ];
        // How much is moved the lists say, later.
        let (dst, src) = (find("the destination", self.dst, 1)?, find("the source", self.src, 1)?);
        let values = [dst, lists[0], lists[1], src, lists[2], lists[3]];
        Ok(TeamLaunch {
            template: "rushmem_stream_alltoallv",
            arguments: element(team, self.elem, dst | src),
            values: values.map(|value| value as u64).to_vec(),
            bytes: 0,
        })
    }
}

impl TeamReduction {
    /// `blocks` of `n` elements each are in the source.
    fn check(&self, template: &'static str, blocks: usize, find: Find<'_>) -> Result<Option<TeamLaunch>> {
        let (of, op) = reduction(self.of, self.op).map_err(|why| err!(INVALID_ARGUMENT, "{why}"))?;
        let word = word_of(of, op)?;
        let bytes = |blocks| product(&[blocks, self.n, of.bytes]);
        let (to_bytes, from_bytes) = (bytes(1)?, bytes(blocks)?);
        for (what, at) in [("the destination", self.dst), ("the source", self.src)] {
            check_aligned(what, at, word.align)?;
        }
        let (to, from) =
            (find("the destination", self.dst, to_bytes)?, find("the source", self.src, from_bytes)?);
        one_or_apart((self.dst, to_bytes), (self.src, from_bytes))?;
        Ok((self.n > 0).then(|| TeamLaunch {
            template,
            arguments: word.arguments,
            values: vec![to as u64, from as u64, (self.n * word.each) as u64],
            bytes: from_bytes as u64,
        }))
    }
}

/// Whether kernels do that reduction.
pub(crate) fn is_reduced_by_kernels(of: i32, op: i32) -> bool {
    reduction(of, op).is_ok_and(|(of, op)| word_of(of, op).is_ok())
}

/// What kernels take for an element of a reduction.
struct ReducedWord {
    /// Template arguments: its C++ type, and the operator.
    arguments: String,
    align: usize,
    /// How many of them make an element.
    each: usize,
}

fn word_of(of: &Reduced, op: Operator) -> Result<ReducedWord> {
    let complex = of.number == Number::Complex;
    let (word, bytes, each) = match (of.name, op) {
        ("int32", _) => ("int32_t", 4, 1),
        ("uint32", _) => ("uint32_t", 4, 1),
        ("int64", _) => ("int64_t", 8, 1),
        ("uint64", _) => ("uint64_t", 8, 1),
        ("float", _) => ("float", 4, 1),
        ("double", _) => ("double", 8, 1),
        ("int8", _) => ("int8_t", 1, 1),
        ("uint8", _) => ("uint8_t", 1, 1),
        ("int16", _) => ("int16_t", 2, 1),
        ("uint16", _) => ("uint16_t", 2, 1),
        ("half", _) => ("__half", 2, 1),
        ("bfloat16", _) => ("__nv_bfloat16", 2, 1),
        ("complexf", _) => ("rushmem::complex<float>", 4, 1),
        // The sum of these is that of their parts, in kernels, too.
        ("complexd", Operator::Sum) => ("double", 8, 2),
        (name, op) => {
            let why =
                if complex { "kernels combine words of 8 bytes at most" } else { "kernels do not know it" };
            return Err(err!(UNSUPPORTED, "there is no {op} of {name} on streams: {why}"));
        }
    };
    let operator = match op {
        Operator::And | Operator::Or | Operator::Xor => format!("{op}_"),
        _ => op.to_string(),
    };
    Ok(ReducedWord { arguments: format!(", {word}, rushmem::{operator}"), align: bytes, each })
}

/// A collective that moves `bytes` to or from each member, whatever they are; `all` of a PE together. On GPUs
/// it is one of three instances, by what addresses and length have in common: kernels look for wider access
/// themselves, but not among the few bytes of small calls. To a CPU it is all one.
fn moved(
    caller: Caller,
    template: &'static str,
    (dst, src): (usize, usize),
    bytes: usize,
    all: usize,
    more: &[u64],
) -> Option<TeamLaunch> {
    let units = if caller.gpu { &[16, 4][..] } else { &[] };
    let unit = units.iter().copied().find(|unit| (dst | src | bytes) % unit == 0).unwrap_or(1);
    let mut values = vec![dst as u64, src as u64, (bytes / unit) as u64];
    values.extend(more);
    let arguments = element(caller, unit, 0);
    (bytes > 0).then_some(TeamLaunch { template, arguments, values, bytes: all as u64 })
}

/// The type of an element of so many bytes, where `places` are the addresses that it is at: aligned as far as
/// its size allows, or not at all.
fn element(caller: Caller, bytes: usize, places: usize) -> String {
    let natural = 1 << (bytes | 16).trailing_zeros();
    let align = if caller.gpu && places % natural == 0 { natural } else { 1 };
    format!(", rushmem_element<{bytes}, {align}>")
}

fn check_element(name: &str, bytes: usize) -> Result<()> {
    /// An element is moved by one thread, and a launch compiled for its size.
    const MOST: usize = 4096;
    if (1..=MOST).contains(&bytes) {
        return Ok(());
    }
    Err(err!(INVALID_ARGUMENT, "an element of {name} has 1 to {MOST} bytes, not {bytes}"))
}

fn product(factors: &[usize]) -> Result<usize> {
    let product = factors.iter().try_fold(1usize, |product, factor| product.checked_mul(*factor));
    product.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(too_long)
}

fn too_long() -> crate::error::Error {
    err!(INVALID_ARGUMENT, "the arrays would be longer than the address space")
}

/// Arrays that are the same, or do not overlap.
fn one_or_apart(dst: (usize, usize), src: (usize, usize)) -> Result<()> {
    if dst.0 == src.0 {
        Ok(())
    } else {
        apart(dst, src)
    }
}

fn apart(dst: (usize, usize), src: (usize, usize)) -> Result<()> {
    let ends_before = |a: (usize, usize), b: (usize, usize)| a.0.saturating_add(a.1) <= b.0;
    if dst.1 == 0 || src.1 == 0 || ends_before(dst, src) || ends_before(src, dst) {
        return Ok(());
    }
    Err(err!(
        INVALID_ARGUMENT,
        "the destination {:#x} ({} bytes) and the source {:#x} ({} bytes) overlap",
        dst.0,
        dst.1,
        src.0,
        src.1
    ))
}

/// [`check_private`], for memory that is not symmetric.
pub(crate) fn check_plain(what: &'static str, at: usize, bytes: usize) -> Result<()> {
    check_private(what, at, bytes)
}

#[cfg(test)]
#[path = "team_call_tests.rs"]
mod tests;
