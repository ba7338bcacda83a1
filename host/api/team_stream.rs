//! Collectives of a team in a stream's turn.
//!
//! They are methods of [`Stream`] that take the team, or one of its slot sets ([`Team::on`]): all members
//! make the same calls in one slot set in the same order, on streams or in kernels. Memory is symmetric on
//! both sides; the C ABI takes any that the device reaches.

use std::ffi::{c_void, CString};

use rushmem_abi::c::rushmem_team_t;

use crate::error::out_of_bounds;
use crate::number::{Number, Operator};
use crate::slice::SymRef;
use crate::stream::Stream;
use crate::team::Team;
use crate::{Error, ErrorCode, Result, Symmetric, World};

/// A slot set of a team, in which collectives on streams meet: [`Team::on`] chooses one, `&team` is its
/// first.
#[derive(Debug, Clone, Copy)]
pub struct SlotSet<'t> {
    world: &'t World,
    team: *mut rushmem_team_t,
    n_pes: usize,
    set: u32,
}

impl<'t> From<&'t Team<'_>> for SlotSet<'t> {
    fn from(team: &'t Team<'_>) -> Self {
        team.on(0)
    }
}

/// Kernels that calls on streams need; [`Team::prepare`] takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    collective: &'static str,
    op: i32,
    what: usize,
}

macro_rules! prepared {
    ([] $(
        $kind:ident $name:ident $variant:ident ($dst:ident <- $src:ident) {
            device $header:literal $device:literal;
            $(#[$host_doc:meta])*
            host $host:ident = $host_symbol:ident($($host_arg:ident: $host_type:ty),*);
            $(#[$stream_doc:meta])*
            stream $stream:ident = $stream_symbol:ident($($stream_arg:ident: $stream_type:ty),*);
        }
    )*) => {
        impl Prepared {
            $(prepared! { $kind $name })*
        }
    };
    (reducing $name:ident) => {
        #[doc = concat!("Of [`Stream::", stringify!($name), "`] of such elements with that operator.")]
        pub fn $name<T: Number, Op: Operator<T>>(_: Op) -> Prepared {
            Prepared { collective: stringify!($name), op: Op::CODE, what: T::TYPE as usize }
        }
    };
    (elements $name:ident) => {
        #[doc = concat!("Of [`Stream::", stringify!($name), "`] of such elements.")]
        pub fn $name<T: Symmetric>() -> Prepared {
            Prepared { collective: stringify!($name), op: 0, what: size_of::<T>() }
        }
    };
    ($kind:ident $name:ident) => {
        #[doc = concat!("Of [`Stream::", stringify!($name), "`].")]
        pub fn $name() -> Prepared {
            Prepared { collective: stringify!($name), op: 0, what: 0 }
        }
    };
}
rushmem_abi::collectives!(prepared);

impl<'w> Team<'w> {
    /// Slot set `set` of the team, for collectives on streams. Calls in different sets of one team may be
    /// under way at once; a team has as many as [`TeamConfig::slot_sets`](crate::TeamConfig::slot_sets) says,
    /// and a call in another is an error.
    pub fn on(&self, set: u32) -> SlotSet<'_> {
        SlotSet { world: self.world(), team: self.as_raw(), n_pes: self.n_pes() as usize, set }
    }

    /// Loads the kernels that collectives on streams need, which their first call would do else. Local.
    ///
    /// On a GPU the driver may load code only when the kernels that run on it have ended. If one of them
    /// waits for the call that loads, or for another PE whose call waits so, nobody goes on: prepare before
    /// such kernels start. A stream that is being captured into a graph takes only calls that are prepared,
    /// or have been made before.
    ///
    /// Each PE begins at another of them, so that the PEs of a host share the compiling where they share a
    /// cache (`RUSHMEM_CACHE_DIR`).
    ///
    /// ```
    /// use rushmem::{Prepared, Sum, World};
    ///
    /// # fn main() -> rushmem::Result<()> {
    /// let world = World::init()?;
    /// world.team().prepare(&[Prepared::reduce::<f32, _>(Sum), Prepared::barrier()])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Compile`](ErrorCode::Compile) and [`Unsupported`](ErrorCode::Unsupported) where the device's
    /// compiler or its element types fall short.
    pub fn prepare(&self, what: &[Prepared]) -> Result<()> {
        let world = self.world();
        let first = self.my_pe() as usize * what.len() / self.n_pes().max(1) as usize;
        what[first..].iter().chain(&what[..first]).try_for_each(|prepared| {
            let name = CString::new(prepared.collective).unwrap_or_default();
            // SAFETY: a live handle and a C string.
            let code = unsafe {
                let prepare = world.runtime().team_prepare;
                prepare(self.as_raw(), name.as_ptr(), prepared.what, prepared.op)
            };
            world.check(code)
        })
    }
}

impl SlotSet<'_> {
    /// The raw stream, for a call of this team.
    fn on(&self, stream: &Stream<'_>) -> Result<*mut c_void> {
        stream.of(self.world)
    }

    /// Memory of the team's world.
    fn memory<T: Symmetric>(&self, memory: &SymRef<'_, T>) -> Result<*mut T> {
        if std::ptr::eq(self.world, memory.world()) {
            return Ok(memory.as_ptr());
        }
        Err(Error::new(ErrorCode::InvalidArgument, "the memory belongs to another world than the team"))
    }

    /// `blocks` blocks of `n` elements at the start of the view.
    fn blocks<T: Symmetric>(&self, memory: &SymRef<'_, T>, blocks: usize, n: usize) -> Result<*mut T> {
        match blocks.checked_mul(n) {
            Some(all) if all <= memory.len() => self.memory(memory),
            _ => Err(out_of_bounds(format_args!("{blocks} blocks of {n} elements"), memory.len())),
        }
    }

    /// The length of a block where the view is one for each member.
    fn part<T: Symmetric>(&self, memory: &SymRef<'_, T>) -> Result<usize> {
        if memory.len() % self.n_pes == 0 {
            return Ok(memory.len() / self.n_pes);
        }
        Err(Error::new(
            ErrorCode::InvalidArgument,
            format!("{} elements are no whole blocks for {} members", memory.len(), self.n_pes),
        ))
    }
}

/// Collectives of a team. What they wait for is in the stream's turn; the calls return at once.
///
/// # Errors
/// Of each, when it is called, with nothing put on the stream:
/// [`InvalidArgument`](ErrorCode::InvalidArgument) for memory, a stream or a slot set that is not the
/// team's, for arrays that overlap, [`OutOfBounds`](ErrorCode::OutOfBounds) where a view is too short,
/// [`BadPe`](ErrorCode::BadPe) for a root that is no member, [`Unsupported`](ErrorCode::Unsupported) on a
/// stream that is being captured where the call is not [prepared](Team::prepare). Later, by
/// [`Stream::synchronize`]: [`Mismatch`](ErrorCode::Mismatch) where members' calls differ,
/// [`Busy`](ErrorCode::Busy) where this PE has another call in the slot set,
/// [`PeerDead`](ErrorCode::PeerDead).
impl Stream<'_> {
    /// Nothing behind it begins before every member has come to it.
    pub fn sync<'t>(&self, team: impl Into<SlotSet<'t>>) -> Result<()> {
        let t = team.into();
        // SAFETY: live handles; the team outlives its work, as `Team::free` says.
        t.world.check(unsafe { (t.world.runtime().team_sync_on_stream)(t.team, t.set, t.on(self)?) })
    }

    /// [`sync`](Stream::sync) behind a quiet: what the members' streams put before is complete.
    pub fn barrier<'t>(&self, team: impl Into<SlotSet<'t>>) -> Result<()> {
        let t = team.into();
        // SAFETY: live handles; the team outlives its work, as `Team::free` says.
        t.world.check(unsafe { (t.world.runtime().team_barrier_on_stream)(t.team, t.set, t.on(self)?) })
    }

    /// All of `src` of member `root` goes to the start of `dst` on all members, the root's own too. They may
    /// be the same memory.
    pub fn broadcast<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        root: u32,
    ) -> Result<()> {
        let t = team.into();
        let (to, from) = (t.blocks(dst, 1, src.len())?, t.memory(src)?);
        let root = i32::try_from(root).unwrap_or(i32::MAX);
        // SAFETY: symmetric memory on both sides, as long as just checked, which lives as long as the world.
        t.world.check(unsafe {
            let broadcast = t.world.runtime().team_broadcast_on_stream;
            broadcast(t.team, to.cast(), from.cast(), src.bytes(), root, t.set, t.on(self)?)
        })
    }

    /// All of `src` of each member goes to `dst` on all, in the order of the members. `src` may be this
    /// member's part of `dst`.
    pub fn fcollect<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
    ) -> Result<()> {
        let t = team.into();
        let (to, from) = (t.blocks(dst, t.n_pes, src.len())?, t.memory(src)?);
        // SAFETY: symmetric memory on both sides, as long as just checked, which lives as long as the world.
        t.world.check(unsafe {
            let fcollect = t.world.runtime().team_fcollect_on_stream;
            fcollect(t.team, to.cast(), from.cast(), src.bytes(), t.set, t.on(self)?)
        })
    }

    /// [`fcollect`](Stream::fcollect) where `src` has another length on each member.
    ///
    /// # Safety
    /// `dst` has room for all members' elements.
    pub unsafe fn collect<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
    ) -> Result<()> {
        let t = team.into();
        let (to, from) = (t.blocks(dst, 1, src.len())?, t.memory(src)?);
        // SAFETY: symmetric memory on both sides, which lives as long as the world; the caller vouches for
        // what the others send.
        t.world.check(unsafe {
            let collect = t.world.runtime().team_collect_on_stream;
            collect(t.team, to.cast(), from.cast(), size_of::<T>(), src.len(), t.set, t.on(self)?)
        })
    }

    /// `src` is a block for each member: block j goes to member j, where it is block `my_pe` of `dst`. They
    /// may be the same memory.
    pub fn alltoall<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
    ) -> Result<()> {
        let t = team.into();
        let n = t.part(src)?;
        let (to, from) = (t.blocks(dst, t.n_pes, n)?, t.memory(src)?);
        // SAFETY: symmetric memory on both sides, as long as just checked, which lives as long as the world.
        t.world.check(unsafe {
            let alltoall = t.world.runtime().team_alltoall_on_stream;
            alltoall(t.team, to.cast(), from.cast(), n * size_of::<T>(), t.set, t.on(self)?)
        })
    }

    /// [`alltoall`](Stream::alltoall) of `n` elements for each member that are apart: element k for member j
    /// is `src[(j * n + k) * src_stride]`, and so in `dst`.
    pub fn alltoalls<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        dst: &SymRef<'_, T>,
        src: &SymRef<'_, T>,
        (dst_stride, src_stride): (usize, usize),
        n: usize,
    ) -> Result<()> {
        let t = team.into();
        let last = |stride: usize| match n.checked_mul(t.n_pes) {
            Some(0) => Some(0),
            all => (all? - 1).checked_mul(stride)?.checked_add(1),
        };
        for (memory, stride) in [(dst, dst_stride), (src, src_stride)] {
            if last(stride).is_none_or(|needed| needed > memory.len()) {
                let what = format_args!("{n} elements for each member, {stride} apart",);
                return Err(out_of_bounds(what, memory.len()));
            }
        }
        let (to, from) = (t.memory(dst)?, t.memory(src)?);
        let [dst_stride, src_stride] =
            [dst_stride, src_stride].map(|n| isize::try_from(n).unwrap_or(isize::MAX));
        // SAFETY: symmetric memory on both sides, as long as just checked, which lives as long as the world.
        t.world.check(unsafe {
            let alltoalls = t.world.runtime().team_alltoalls_on_stream;
            let (stream, elem) = (t.on(self)?, size_of::<T>());
            alltoalls(t.team, to.cast(), from.cast(), dst_stride, src_stride, elem, n, t.set, stream)
        })
    }

    /// Blocks of different sizes: `n[j]` elements at `src[src_at[j]]` go to member j, and what comes from
    /// member i lies at `dst[dst_at[i]]`: `received[i]` elements, where that is asked for. The lists have an
    /// entry for each member, and are read and written in the stream's turn.
    ///
    /// # Safety
    /// What the lists then say lies within `src` and, of all that is sent here, within `dst`; no two parts of
    /// `dst` overlap.
    pub unsafe fn alltoallv<'t, T: Symmetric>(
        &self,
        team: impl Into<SlotSet<'t>>,
        (dst, dst_at, received): (&SymRef<'_, T>, &SymRef<'_, u64>, Option<&SymRef<'_, u64>>),
        (src, src_at, n): (&SymRef<'_, T>, &SymRef<'_, u64>, &SymRef<'_, u64>),
    ) -> Result<()> {
        let t = team.into();
        let list = |list: &SymRef<'_, u64>| t.blocks(list, t.n_pes, 1).map(<*mut u64>::cast::<usize>);
        let received = received.map_or(Ok(std::ptr::null_mut()), list)?;
        let (dst_at, src_at, n) = (list(dst_at)?, list(src_at)?, list(n)?);
        let (to, from) = (t.memory(dst)?, t.memory(src)?);
        // SAFETY: lists of symmetric memory, as long as just checked, which lives as long as the world; the
        // caller vouches for what they will say.
        t.world.check(unsafe {
            let alltoallv = t.world.runtime().team_alltoallv_on_stream;
            let (stream, elem) = (t.on(self)?, size_of::<T>());
            alltoallv(t.team, to.cast(), dst_at, received, from.cast(), src_at, n, elem, t.set, stream)
        })
    }
}

macro_rules! reductions {
    ([] $(
        $kind:ident $name:ident $variant:ident ($dst:ident <- $src:ident) {
            device $header:literal $device:literal;
            $(#[$host_doc:meta])*
            host $host:ident = $host_symbol:ident($($host_arg:ident: $host_type:ty),*);
            $(#[$stream_doc:meta])*
            stream $stream:ident = $stream_symbol:ident($($stream_arg:ident: $stream_type:ty),*);
        }
    )*) => {
        impl Stream<'_> {
            $(reductions! { $kind $name $stream $src })*
        }
    };
    (reducing $name:ident $field:ident $blocks:ident) => {
        #[doc = concat!("[`Team::", stringify!($name), "`] in the stream's turn, of symmetric memory: the same bits on")]
        /// every member, in every run, and in kernels. Errors as those of the other collectives on streams.
        ///
        /// ```
        /// use rushmem::{Sum, World};
        ///
        /// # fn main() -> rushmem::Result<()> {
        /// let world = World::init()?;
        /// let (team, stream) = (world.team(), world.stream()?);
        /// let x = world.alloc::<f32>(120 * world.n_pes() as usize)?;
        /// x.fill(1.0)?;
        #[doc = concat!("stream.", stringify!($name), "(&team, &x, &x, Sum)?;")]
        /// stream.synchronize()?;
        /// # Ok(()) }
        /// ```
        pub fn $name<'t, T: Number, Op: Operator<T>>(
            &self,
            team: impl Into<SlotSet<'t>>,
            dst: &SymRef<'_, T>,
            src: &SymRef<'_, T>,
            _: Op,
        ) -> Result<()> {
            let t = team.into();
            let n = reductions!(elements $blocks t src);
            let (to, from) = (t.blocks(dst, 1, n)?, t.memory(src)?);
            // SAFETY: symmetric memory on both sides, as long as just checked, which lives as long as the
            // world.
            t.world.check(unsafe {
                let combine = t.world.runtime().$field;
                combine(t.team, to.cast(), from.cast(), n, T::TYPE, Op::CODE, t.set, t.on(self)?)
            })
        }
    };
    (elements one $t:ident $src:ident) => { $src.len() };
    (elements each $t:ident $src:ident) => { $t.part($src)? };
    ($kind:ident $name:ident $field:ident $blocks:ident) => {};
}
rushmem_abi::collectives!(reductions);
