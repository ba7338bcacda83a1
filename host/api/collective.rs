//! Collectives of a team, called by the host: data to all, from all, between all, and reductions (OpenSHMEM
//! 1.5, section 9.9). Arrays are symmetric memory or ordinary slices.

use rushmem_abi::c::rushmem_team_t;
use rushmem_abi::collective::Blocks;

use crate::number::{Number, Operator};
use crate::slice::{SymRef, SymSlice};
use crate::{Error, ErrorCode, Result, Symmetric, Team};

mod sealed {
    pub trait Sealed {}
}

/// Where a collective reads: symmetric memory (`&SymSlice`, `&SymRef`), or a slice, an array or a vector.
pub trait FromMemory<T: Symmetric>: sealed::Sealed {
    #[doc(hidden)]
    fn source(&self) -> (*const T, usize);
}

/// Where a collective writes: symmetric memory (`&SymSlice`, `&SymRef`), or a slice, an array or a vector by
/// `&mut`.
pub trait ToMemory<T: Symmetric>: sealed::Sealed {
    #[doc(hidden)]
    fn target(&mut self) -> (*mut T, usize);
}

macro_rules! memory {
    (symmetric: $($type:ty),*) => {$(
        impl<T: Symmetric> sealed::Sealed for &$type {}
        impl<T: Symmetric> FromMemory<T> for &$type {
            fn source(&self) -> (*const T, usize) {
                (self.as_ptr(), self.len())
            }
        }
        impl<T: Symmetric> ToMemory<T> for &$type {
            fn target(&mut self) -> (*mut T, usize) {
                (self.as_ptr(), self.len())
            }
        }
    )*};
    (slices: $([$($n:tt)*] $type:ty),*) => {$(
        impl<T: Symmetric, $($n)*> sealed::Sealed for &$type {}
        impl<T: Symmetric, $($n)*> sealed::Sealed for &mut $type {}
        impl<T: Symmetric, $($n)*> FromMemory<T> for &$type {
            fn source(&self) -> (*const T, usize) {
                (self.as_ptr(), self.len())
            }
        }
        impl<T: Symmetric, $($n)*> ToMemory<T> for &mut $type {
            fn target(&mut self) -> (*mut T, usize) {
                (self.as_mut_ptr(), self.len())
            }
        }
    )*};
}

memory!(symmetric: SymSlice<'_, T>, SymRef<'_, T>);
memory!(slices: [] [T], [] Vec<T>, [const N: usize] [T; N]);

/// Two arrays whose lengths do not fit.
fn lengths(what: std::fmt::Arguments<'_>) -> Error {
    Error::new(ErrorCode::OutOfBounds, what.to_string())
}

impl Team<'_> {
    /// The outcome of a collective call. With a `mistake` in this member's arguments, the call was made with
    /// arguments that are refused, so that the others do not wait: the mistake is this member's error.
    fn outcome(&self, code: i32, mistake: Option<Error>) -> Result<()> {
        let outcome = self.world().check(code);
        match (mistake, outcome) {
            // What says more than that the others have an error, too.
            (Some(_), Err(e)) if !matches!(e.code(), ErrorCode::InvalidArgument | ErrorCode::OutOfBounds) => {
                Err(e)
            }
            (Some(mistake), _) => Err(mistake),
            (None, outcome) => outcome,
        }
    }

    /// The root's `src` is at every member's `dst`, also at its own. All give arrays of one length, the
    /// root at least. Collective.
    ///
    /// ```
    /// use rushmem::{Max, Sum, World};
    ///
    /// # fn main() -> rushmem::Result<()> {
    /// let world = World::init()?;
    /// let team = world.team();
    /// let x = world.alloc::<f32>(1000)?;
    /// x.fill(0.5)?;
    /// team.reduce(&x, &x, Sum)?; // in place, in symmetric memory
    /// let mut largest = [0.0];
    /// team.reduce(&mut largest, &[x.g(0, world.my_pe())?], Max)?; // or in any other
    /// let mut all = vec![0; team.n_pes() as usize];
    /// team.fcollect(&mut all, &[team.my_pe()])?;
    /// # Ok(()) }
    /// ```
    ///
    /// This and the other collectives: arrays may be symmetric or not, on each member; large ones go faster
    /// where they are symmetric. Destination and source are the same array or do not overlap. On return the
    /// destination is complete and the source may be changed.
    ///
    /// # Errors
    /// On all members, with nothing written: [`Mismatch`](ErrorCode::Mismatch) where arguments or calls
    /// differ; the error of a member whose arguments are wrong, [`BadPe`](ErrorCode::BadPe) for a root that
    /// is no member, [`OutOfBounds`](ErrorCode::OutOfBounds) for lengths that do not fit,
    /// [`InvalidArgument`](ErrorCode::InvalidArgument) for arrays that overlap.
    /// [`Timeout`](ErrorCode::Timeout) and [`PeerDead`](ErrorCode::PeerDead) leave the destination in any
    /// state. On one PE: [`Busy`](ErrorCode::Busy) while another thread is in a collective call of this
    /// team.
    pub fn broadcast<T: Symmetric>(
        &self,
        mut dst: impl ToMemory<T>,
        src: impl FromMemory<T>,
        root: u32,
    ) -> Result<()> {
        let ((to, n), (from, given)) = (dst.target(), src.source());
        let mistake = (root == self.my_pe() && given != n)
            .then(|| lengths(format_args!("a broadcast of {given} elements to a destination of {n}")));
        let to = if mistake.is_some() { std::ptr::null_mut() } else { to };
        let root = i32::try_from(root).unwrap_or(i32::MAX);
        // SAFETY: a live handle, and arrays as long as they say; one that is null is refused.
        let code = unsafe {
            let call = self.runtime().team_broadcast;
            call(self.as_raw(), to.cast(), from.cast(), n * size_of::<T>(), root)
        };
        self.outcome(code, mistake)
    }

    /// [`Team::broadcast`] from where it goes: the root's `data` is at every member's.
    pub fn broadcast_in_place<T: Symmetric>(&self, mut data: impl ToMemory<T>, root: u32) -> Result<()> {
        let (at, n) = data.target();
        let root = i32::try_from(root).unwrap_or(i32::MAX);
        // SAFETY: a live handle, and an array as long as it says.
        let code = unsafe {
            let call = self.runtime().team_broadcast;
            call(self.as_raw(), at.cast(), at.cast_const().cast(), n * size_of::<T>(), root)
        };
        self.outcome(code, None)
    }

    /// Every member's `src`, one behind the other in the order of the members, is at every member's `dst`,
    /// which is as long as all of them. `src` may be this member's part of `dst`. Collective, and errors,
    /// as [`broadcast`](Team::broadcast).
    pub fn fcollect<T: Symmetric>(&self, mut dst: impl ToMemory<T>, src: impl FromMemory<T>) -> Result<()> {
        let ((to, room), (from, n)) = (dst.target(), src.source());
        let mistake = self.check_blocks(room, n, "the destination of fcollect");
        let to = if mistake.is_some() { std::ptr::null_mut() } else { to };
        // SAFETY: a live handle, and arrays as long as they say; one that is null is refused.
        let code = unsafe {
            (self.runtime().team_fcollect)(self.as_raw(), to.cast(), from.cast(), n * size_of::<T>())
        };
        self.outcome(code, mistake)
    }

    /// [`Team::fcollect`] of sources of any lengths: how many elements have come. Collective, and errors, as
    /// [`broadcast`](Team::broadcast); also where a member's `dst` is too short for all.
    pub fn collect<T: Symmetric>(&self, mut dst: impl ToMemory<T>, src: impl FromMemory<T>) -> Result<usize> {
        let ((to, room), (from, n), mut came) = (dst.target(), src.source(), 0);
        let (room, bytes) = (room * size_of::<T>(), n * size_of::<T>());
        // SAFETY: a live handle, arrays as long as they say, and a place for the answer.
        let code = unsafe {
            let call = self.runtime().team_collect;
            call(self.as_raw(), to.cast(), room, from.cast(), bytes, &mut came)
        };
        self.outcome(code, None)?;
        Ok(came / size_of::<T>().max(1))
    }

    /// Block `j` of each member's `src` is block [`my_pe`](Team::my_pe) of member `j`'s `dst`: both are a
    /// block for each member, and as long as each other. Collective, and errors, as
    /// [`broadcast`](Team::broadcast).
    pub fn alltoall<T: Symmetric>(&self, mut dst: impl ToMemory<T>, src: impl FromMemory<T>) -> Result<()> {
        let ((to, room), (from, n)) = (dst.target(), src.source());
        let members = self.n_pes() as usize;
        let mistake = (room != n || n % members != 0).then(|| {
            lengths(format_args!(
                "an alltoall of {members} blocks from {n} elements to a destination of {room}"
            ))
        });
        // Of no bytes nothing is refused.
        let (to, block) =
            if mistake.is_some() { (std::ptr::null_mut(), n / members + 1) } else { (to, n / members) };
        // SAFETY: a live handle, and arrays as long as they say; one that is null is refused.
        let code = unsafe {
            (self.runtime().team_alltoall)(self.as_raw(), to.cast(), from.cast(), block * size_of::<T>())
        };
        self.outcome(code, mistake)
    }

    /// [`Team::alltoall`] of blocks of `n` elements that are apart: element `k` of block `j` of `src` is
    /// `src[(j * n + k) * src_stride]`, and so in `dst`. What lies between is not touched, and the arrays
    /// do not overlap. Collective, and errors, as [`broadcast`](Team::broadcast).
    pub fn alltoalls<T: Symmetric>(
        &self,
        mut dst: impl ToMemory<T>,
        src: impl FromMemory<T>,
        dst_stride: usize,
        src_stride: usize,
        n: usize,
    ) -> Result<()> {
        let ((to, room), (from, given)) = (dst.target(), src.source());
        let all = n.checked_mul(self.n_pes() as usize);
        let fits = |stride: usize, len: usize| match all {
            Some(0) => true,
            Some(all) => (all - 1).checked_mul(stride).is_some_and(|last| last < len),
            None => false,
        };
        let mistake = (!fits(dst_stride, room) || !fits(src_stride, given)).then(|| {
            lengths(format_args!(
                "an alltoalls of {} blocks of {n} elements, {src_stride} apart in {given} and {dst_stride} in {room}",
                self.n_pes()
            ))
        });
        let to = if mistake.is_some() { std::ptr::null_mut() } else { to };
        let strides = [dst_stride, src_stride].map(|stride| isize::try_from(stride).unwrap_or(isize::MAX));
        // SAFETY: a live handle, and arrays that hold these elements; one that is null is refused.
        let code = unsafe {
            let call = self.runtime().team_alltoalls;
            call(self.as_raw(), to.cast(), from.cast(), strides[0], strides[1], size_of::<T>(), n)
        };
        self.outcome(code, mistake)
    }

    /// `n[j]` elements at `src_at[j]` of `src` go to member `j`, and what comes from member `i` lies at
    /// `dst_at[i]` of `dst`: how many have come from each. Only senders need to know sizes. Parts of `dst`
    /// do not overlap one another or `src`. Collective, and errors, as [`broadcast`](Team::broadcast); also
    /// where a member's `dst` is too short for what comes.
    pub fn alltoallv<T: Symmetric>(
        &self,
        mut dst: impl ToMemory<T>,
        dst_at: &[usize],
        src: impl FromMemory<T>,
        src_at: &[usize],
        n: &[usize],
    ) -> Result<Vec<usize>> {
        let ((to, room), (from, given)) = (dst.target(), src.source());
        let members = self.n_pes() as usize;
        let lists = [dst_at, src_at, n];
        let mistake = if lists.iter().any(|list| list.len() != members) {
            Some(lengths(format_args!("alltoallv takes lists of {members} entries, one for each member")))
        } else {
            let past = src_at.iter().zip(n).find(|(at, n)| at.checked_add(**n).is_none_or(|end| end > given));
            past.map(|(at, n)| lengths(format_args!("{n} elements at {at} of a source of {given}")))
        };
        let bytes = |list: &[usize]| -> Vec<usize> {
            list.iter().map(|n| n.saturating_mul(size_of::<T>())).collect()
        };
        let [dst_at, src_at, n] = lists.map(bytes);
        let list = if mistake.is_some() { std::ptr::null() } else { n.as_ptr() };
        let mut came = vec![0usize; members];
        // SAFETY: a live handle, arrays as long as they say, and lists with an entry for each member; one
        // that is null is refused before the others are read.
        let code = unsafe {
            let call = self.runtime().team_alltoallv;
            let room = room * size_of::<T>();
            call(
                self.as_raw(),
                to.cast(),
                if list.is_null() { list } else { dst_at.as_ptr() },
                room,
                came.as_mut_ptr(),
                from.cast(),
                if list.is_null() { list } else { src_at.as_ptr() },
                list,
            )
        };
        self.outcome(code, mistake)?;
        came.iter_mut().for_each(|bytes| *bytes /= size_of::<T>().max(1));
        Ok(came)
    }

    /// [`Team::reduce`] in place, of memory that is not symmetric, too.
    pub fn reduce_in_place<T: Number, O: Operator<T>>(&self, mut data: impl ToMemory<T>, _: O) -> Result<()> {
        let (at, n) = data.target();
        // SAFETY: a live handle, and an array as long as it says.
        let code = unsafe {
            let call = self.runtime().team_reduce;
            call(self.as_raw(), at.cast(), at.cast_const().cast(), n, T::TYPE, O::CODE)
        };
        self.outcome(code, None)
    }

    fn combine<T: Number, O: Operator<T>>(
        &self,
        call: Combine,
        mut dst: impl ToMemory<T>,
        src: impl FromMemory<T>,
        (name, source): (&str, Blocks),
    ) -> Result<()> {
        let ((to, n), (from, given)) = (dst.target(), src.source());
        let mistake = match source {
            Blocks::Each => self.check_blocks(given, n, &format!("the source of {name}")),
            _ => (n != given)
                .then(|| lengths(format_args!("{name} of {given} elements to a destination of {n}"))),
        };
        // Of no elements nothing is refused.
        let (to, n) = if mistake.is_some() { (std::ptr::null_mut(), given.max(1)) } else { (to, n) };
        // SAFETY: a live handle, and arrays as long as they say; one that is null is refused.
        let code = unsafe { call(self.as_raw(), to.cast(), from.cast(), n, T::TYPE, O::CODE) };
        self.outcome(code, mistake)
    }

    /// Wrong where `all` elements are not `n` for each member.
    fn check_blocks(&self, all: usize, n: usize, what: &str) -> Option<Error> {
        let members = self.n_pes() as usize;
        (n.checked_mul(members) != Some(all)).then(|| {
            lengths(format_args!("{what} has {all} elements: expected {n} for each of {members} members"))
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
        impl Team<'_> {
            $(reductions! { $kind $name $host $variant })*
        }
    };
    (reducing $name:ident $field:ident Reduce) => {
        reductions! {
            @ $name $field One
            /// Element `i` of every member's `dst` is that of all members' `src`, combined by `op`.
            /// Collective, and errors, as [`broadcast`](Team::broadcast).
            ///
            /// Members are combined in the order of their numbers, `((x0 + x1) + x2) + ...`, so that the
            /// result is the same bits on every member, in every run, and in kernels. 16-bit floats are
            /// combined in 32 bits and rounded once.
        }
    };
    (reducing $name:ident $field:ident Reducescatter) => {
        reductions! {
            @ $name $field Each
            /// Member `j` gets block `j` of what [`reduce`](Team::reduce) would make of `src`, which is a
            /// block as long as `dst` for each member. `dst` may be the first block of `src`, or this
            /// member's. Collective, and errors, as [`broadcast`](Team::broadcast).
        }
    };
    (reducing $name:ident $field:ident Inscan) => {
        reductions! {
            @ $name $field One
            /// [`Team::reduce`] of the members up to each one, itself included. Collective, and errors, as
            /// that.
        }
    };
    (reducing $name:ident $field:ident Exscan) => {
        reductions! {
            @ $name $field One
            /// [`Team::reduce`] of the members before each one; the first one gets zeroes. Collective, and
            /// errors, as that.
        }
    };
    (@ $name:ident $field:ident $source:ident $(#[$doc:meta])*) => {
        $(#[$doc])*
        pub fn $name<T: Number, O: Operator<T>>(
            &self,
            dst: impl ToMemory<T>,
            src: impl FromMemory<T>,
            _: O,
        ) -> Result<()> {
            let call = (stringify!($name), Blocks::$source);
            self.combine::<T, O>(self.runtime().$field, dst, src, call)
        }
    };
    ($kind:ident $name:ident $field:ident $variant:ident) => {};
}
rushmem_abi::collectives!(reductions);

/// A reduction of the C ABI.
type Combine = unsafe extern "C" fn(
    *mut rushmem_team_t,
    *mut std::ffi::c_void,
    *const std::ffi::c_void,
    usize,
    i32,
    i32,
) -> i32;
