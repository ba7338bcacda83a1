//! Collectives of teams, of the host and on streams.

mod alltoallv;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rushmem_abi::c::*;
use rushmem_abi::reduction::Operator;

use crate::dtype::Dtype;
use crate::error::{self, Failure};
use crate::operand::{For, Held, Operand};
use crate::stream;
use crate::team::Team;

/// The number of an operator.
fn operator(op: &str) -> PyResult<i32> {
    let found = Operator::ALL.iter().find(|one| one.name() == op);
    found.map(|one| one.code()).ok_or_else(|| {
        let names: Vec<_> = Operator::ALL.iter().map(|one| one.name()).collect();
        PyValueError::new_err(format!("{op:?} is no operator; there are: {}", names.join(", ")))
    })
}

/// The two arrays of a collective.
struct Sides {
    dst: Operand,
    src: Operand,
}

impl Sides {
    /// `src` stands for `dst` where it is missing.
    fn of<'py>(py: Python<'py>, dst: &Bound<'py, PyAny>, src: Option<&Bound<'py, PyAny>>) -> PyResult<Sides> {
        let sides = Sides {
            dst: Operand::of(dst, "dst", For::Writing)?,
            src: Operand::of(src.unwrap_or(dst), "src", For::Reading)?,
        };
        sides.dst.check_dense(py, "dst")?;
        sides.src.check_dense(py, "src")?;
        for (side, what) in [(&sides.dst, "dst"), (&sides.src, "src")] {
            if let Held::Array(array) = &side.held {
                array
                    .get()
                    .symmetric(py)
                    .map_err(|_| error::invalid(py, &format!("{what} shows another PE's memory")))?;
            }
        }
        Ok(sides)
    }

    /// The number of the elements' type.
    fn number(&self, py: Python<'_>, what: &str) -> PyResult<i32> {
        match self.dst.dtype {
            Some(dtype) => dtype.code(py, what),
            None => Err(error::invalid(py, &format!("{what}: the type of dst's elements is not known"))),
        }
    }

    /// `dst` has `dst` times as many bytes as `src` has a `src`th part of.
    fn check(&self, py: Python<'_>, what: &str, dst: usize, src: usize) -> PyResult<()> {
        if let (Some(to), Some(from)) = (self.dst.dtype, self.src.dtype) {
            if !to.takes(from) && !from.takes(to) {
                let text = format!("{what}: dst is of type {}, src of {}", to.name(), from.name());
                return Err(error::invalid(py, &text));
            }
        }
        if self.src.bytes() % src == 0 && self.src.bytes() / src * dst == self.dst.bytes() {
            return Ok(());
        }
        let text = format!(
            "{what}: dst has {} bytes and src {}; {} is wanted",
            self.dst.bytes(),
            self.src.bytes(),
            match (dst, src) {
                (1, 1) => "as many in both".to_owned(),
                (_, 1) => format!("a dst of {dst} times src"),
                _ => format!("a src of {src} times dst"),
            }
        );
        Err(error::invalid(py, &text))
    }
}

impl Team {
    /// One call: `host` now, or `on` in a stream's turn.
    fn collective(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        operands: Option<Sides>,
        host: impl FnOnce() -> i32 + Send,
        on: impl FnOnce(*mut std::ffi::c_void) -> i32 + Send,
    ) -> PyResult<()> {
        let core = &*self.core;
        match stream::handle(core, stream)? {
            None => core.run(py, || Failure::check(core.table, host())),
            Some(handle) => {
                let operands = operands.into_iter().flat_map(|sides| [sides.dst, sides.src]);
                stream::put_on(py, core, handle, operands, || on(handle as *mut _))
            }
        }
    }
}

/// Calls of both kinds with the same arguments behind the team.
macro_rules! call {
    ($self:ident, $py:ident, $stream:ident, $set:ident, $sides:expr, $host:ident, $on:ident, ($($arg:expr),*)) => {{
        let (team, table) = ($self.raw($py)?, $self.core.table);
        $self.collective(
            $py,
            $stream,
            $sides,
            // SAFETY: a live team; operands are valid for the sizes that were compared, through the call.
            || unsafe { (table.$host)(team as *mut _, $($arg),*) },
            // SAFETY: a live team; operands stay valid until the work is done, as the stream holds them.
            |stream| unsafe { (table.$on)(team as *mut _, $($arg,)* $set, stream) },
        )
    }};
}

/// A reduction: `src` has `blocks` times as many elements as `dst`.
macro_rules! reduction {
    ($self:ident, $py:ident, $stream:ident, $set:ident, $sides:expr, $blocks:expr, $op:ident, $name:literal,
     $host:ident, $on:ident) => {{
        let sides = $sides?;
        sides.check($py, $name, 1, $blocks)?;
        let (to, from, n) = (sides.dst.at, sides.src.at, sides.dst.n);
        let (of, op) = (sides.number($py, $name)?, operator($op)?);
        call!($self, $py, $stream, $set, Some(sides), $host, $on, (to as *mut _, from as *const _, n, of, op))
    }};
}

#[pymethods]
impl Team {
    /// Returns once every member has called it; completes nothing.
    #[pyo3(signature = (*, stream=None, slot_set=0))]
    fn sync(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>, slot_set: u32) -> PyResult<()> {
        call!(self, py, stream, slot_set, None, team_sync, team_sync_on_stream, ())
    }

    /// `world.quiet()`, then `sync`: what members have put before is there.
    #[pyo3(signature = (*, stream=None, slot_set=0))]
    fn barrier(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>, slot_set: u32) -> PyResult<()> {
        call!(self, py, stream, slot_set, None, team_barrier, team_barrier_on_stream, ())
    }

    /// `src` of member `root` is `dst` of all.
    #[pyo3(signature = (dst, src=None, *, root=0, stream=None, slot_set=0))]
    fn broadcast<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: Option<&Bound<'py, PyAny>>,
        root: i32,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, src)?;
        sides.check(py, "broadcast", 1, 1)?;
        let (to, from, bytes) = (sides.dst.at, sides.src.at, sides.dst.bytes());
        call!(
            self,
            py,
            stream,
            slot_set,
            Some(sides),
            team_broadcast,
            team_broadcast_on_stream,
            (to as *mut _, from as *const _, bytes, root)
        )
    }

    /// `src` of each member is in `dst` of all, in the order of the members (all-gather).
    #[pyo3(signature = (dst, src, *, stream=None, slot_set=0))]
    fn fcollect<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, Some(src))?;
        sides.check(py, "fcollect", self.n(), 1)?;
        let (to, from, bytes) = (sides.dst.at, sides.src.at, sides.src.bytes());
        call!(
            self,
            py,
            stream,
            slot_set,
            Some(sides),
            team_fcollect,
            team_fcollect_on_stream,
            (to as *mut _, from as *const _, bytes)
        )
    }

    /// `fcollect` of as many elements as each member likes. Of the host: how many bytes have come.
    #[pyo3(signature = (dst, src, *, stream=None, slot_set=0))]
    fn collect<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<Option<usize>> {
        let sides = Sides::of(py, dst, Some(src))?;
        let (to, from, room, bytes) = (sides.dst.at, sides.src.at, sides.dst.bytes(), sides.src.bytes());
        let (n, elem) = (sides.src.n, sides.src.elem);
        let (team, table, mut received) = (self.raw(py)?, self.core.table, 0_usize);
        let out = &mut received;
        self.collective(
            py,
            stream,
            Some(sides),
            // SAFETY: a live team; `dst` has the room that is said, `src` its bytes; a place for the answer.
            || unsafe {
                (table.team_collect)(team as *mut _, to as *mut _, room, from as *const _, bytes, out)
            },
            |on| {
                let (to, from) = (to as *mut _, from as *const _);
                // SAFETY: a live team; that all members' elements have room in `dst` is the caller's word, as
                // of every collective on a stream.
                unsafe { (table.team_collect_on_stream)(team as *mut _, to, from, elem, n, slot_set, on) }
            },
        )?;
        Ok(stream.is_none().then_some(received))
    }

    /// Block j of each member's `src` is block `my_pe` of member j's `dst`.
    #[pyo3(signature = (dst, src, *, stream=None, slot_set=0))]
    fn alltoall<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, Some(src))?;
        sides.check(py, "alltoall", self.n(), self.n())?;
        let (to, from, bytes) = (sides.dst.at, sides.src.at, sides.src.bytes() / self.n());
        call!(
            self,
            py,
            stream,
            slot_set,
            Some(sides),
            team_alltoall,
            team_alltoall_on_stream,
            (to as *mut _, from as *const _, bytes)
        )
    }

    /// `alltoall` of blocks of `n` elements that are `dst_stride` and `src_stride` elements apart.
    #[pyo3(signature = (dst, src, n, *, dst_stride=1, src_stride=1, stream=None, slot_set=0))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn alltoalls<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        n: usize,
        dst_stride: isize,
        src_stride: isize,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, Some(src))?;
        let elem = sides.src.elem;
        for (side, stride, what) in [(&sides.dst, dst_stride, "dst"), (&sides.src, src_stride, "src")] {
            let last = (n * self.n()).saturating_sub(1).checked_mul(stride.unsigned_abs());
            let room = n == 0 || last.is_some_and(|last| last < side.n);
            if side.elem != elem || stride < 1 || !room {
                let text = format!(
                    "alltoalls: {what} has {} elements; {} blocks of {n} with stride {stride} do not fit",
                    side.n,
                    self.n()
                );
                return Err(error::invalid(py, &text));
            }
        }
        let (to, from) = (sides.dst.at, sides.src.at);
        call!(
            self,
            py,
            stream,
            slot_set,
            Some(sides),
            team_alltoalls,
            team_alltoalls_on_stream,
            (to as *mut _, from as *const _, dst_stride, src_stride, elem, n)
        )
    }

    /// `counts[j]` elements at element `src_at[j]` of `src` go to member j; what comes from member i lies at
    /// element `dst_at[i]` of `dst`. How many came from each. With `stream`: the lists are arrays of 64-bit
    /// integers that the device reaches, read in the stream's turn; nothing is compared with the arrays'
    /// lengths, and how many came is written to `received`, if given.
    #[pyo3(signature = (dst, dst_at, src, src_at, counts, *, received=None, stream=None, slot_set=0))]
    #[allow(clippy::too_many_arguments, reason = "they have names in Python")]
    fn alltoallv<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        dst_at: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        src_at: &Bound<'py, PyAny>,
        counts: &Bound<'py, PyAny>,
        received: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<Option<Vec<usize>>> {
        let (sides, n) = (Sides::of(py, dst, Some(src))?, self.n());
        let elem = sides.src.elem;
        if let Some(on) = stream::handle(&self.core, stream)? {
            let lists = [Some(dst_at), received, Some(src_at), Some(counts)];
            return self.alltoallv_on(py, sides, lists, on, slot_set).map(|()| None);
        }
        if received.is_some() {
            return Err(error::invalid(py, "alltoallv returns what came; received is for streams"));
        }
        let list = |list: &Bound<'py, PyAny>| list.extract::<Vec<usize>>();
        let (dst_at, src_at, counts) = (list(dst_at)?, list(src_at)?, list(counts)?);
        if [dst_at.len(), src_at.len(), counts.len()] != [n; 3] || sides.dst.elem != elem {
            let text = format!("alltoallv: dst_at, src_at and counts have a number for each of {n} members, and both arrays one type");
            return Err(error::invalid(py, &text));
        }
        let fits = |i: usize| {
            src_at[i].checked_add(counts[i]).is_some_and(|end| end <= sides.src.n) && dst_at[i] <= sides.dst.n
        };
        if let Some(i) = (0..n).find(|i| !fits(*i)) {
            return Err(error::invalid(
                py,
                &format!("alltoallv: the block for or from member {i} lies outside of its array"),
            ));
        }
        let bytes = |list: Vec<usize>| list.into_iter().map(|n| n * elem).collect::<Vec<_>>();
        let (dst_at, src_at, counts, mut received) =
            (bytes(dst_at), bytes(src_at), bytes(counts), vec![0_usize; n]);
        let (team, table, to, from, room) =
            (self.raw(py)?, self.core.table, sides.dst.at, sides.src.at, sides.dst.bytes());
        let out = &mut received;
        self.core.call(py, move |_, _| {
            let (dst_at, src_at, counts) = (dst_at.as_ptr(), src_at.as_ptr(), counts.as_ptr());
            let (to, from, out) = (to as *mut _, from as *const _, out.as_mut_ptr());
            // SAFETY: a live team; lists with an entry for each member; `dst` has the room that is said, and
            // `src` what the lists say of it.
            unsafe { (table.team_alltoallv)(team as *mut _, to, dst_at, room, out, from, src_at, counts) }
        })?;
        Ok(Some(received.into_iter().map(|bytes| bytes / elem.max(1)).collect()))
    }

    /// Element i of all members' `src` combined is element i of `dst`, on all members: the same bits on each,
    /// in every run. `op`: sum, prod, min, max, and, or, xor.
    #[pyo3(signature = (dst, src=None, op="sum", *, stream=None, slot_set=0))]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: Option<&Bound<'py, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, src);
        reduction!(self, py, stream, slot_set, sides, 1, op, "reduce", team_reduce, team_reduce_on_stream)
    }

    /// Member j gets block j of what `reduce` would make of all members' `src`.
    #[pyo3(signature = (dst, src, op="sum", *, stream=None, slot_set=0))]
    fn reducescatter<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: &Bound<'py, PyAny>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, Some(src));
        reduction!(
            self,
            py,
            stream,
            slot_set,
            sides,
            self.n(),
            op,
            "reducescatter",
            team_reducescatter,
            team_reducescatter_on_stream
        )
    }

    /// `reduce` of the members up to this one.
    #[pyo3(signature = (dst, src=None, op="sum", *, stream=None, slot_set=0))]
    fn inscan<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: Option<&Bound<'py, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, src);
        reduction!(self, py, stream, slot_set, sides, 1, op, "inscan", team_inscan, team_inscan_on_stream)
    }

    /// `reduce` of the members before this one; zeroes on the first.
    #[pyo3(signature = (dst, src=None, op="sum", *, stream=None, slot_set=0))]
    fn exscan<'py>(
        &self,
        py: Python<'py>,
        dst: &Bound<'py, PyAny>,
        src: Option<&Bound<'py, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
        slot_set: u32,
    ) -> PyResult<()> {
        let sides = Sides::of(py, dst, src);
        reduction!(self, py, stream, slot_set, sides, 1, op, "exscan", team_exscan, team_exscan_on_stream)
    }

    /// Loads what calls of `collective` on streams need, so that the first of them may be captured into a
    /// CUDA graph: of reductions with elements of `dtype` and `op`, of collect and its like with elements of
    /// `dtype`. Local.
    #[pyo3(signature = (collective, dtype=None, op=None))]
    fn prepare(
        &self,
        py: Python<'_>,
        collective: &str,
        dtype: Option<&Bound<'_, PyAny>>,
        op: Option<&str>,
    ) -> PyResult<()> {
        let dtype = dtype.map(Dtype::of).transpose()?;
        let (what, op) = match (dtype, op) {
            (Some(dtype), Some(op)) => (dtype.code(py, collective)? as usize, operator(op)?),
            (Some(dtype), None) if matches!(collective, "collect" | "alltoalls" | "alltoallv") => {
                (dtype.bytes(), 0)
            }
            (Some(dtype), None) => (dtype.code(py, collective)? as usize, RUSHMEM_SUM),
            (None, _) => (0, 0),
        };
        let what = if matches!(collective, "sync" | "barrier" | "broadcast" | "fcollect" | "alltoall") {
            0
        } else {
            what
        };
        let name = std::ffi::CString::new(collective)?;
        let team = self.raw(py)?;
        self.core.call(py, |table, _| {
            // SAFETY: a live team and a C string.
            unsafe { (table.team_prepare)(team as *mut _, name.as_ptr(), what, op) }
        })
    }
}
