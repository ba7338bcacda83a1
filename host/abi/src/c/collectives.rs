//! The rows of the table of collectives ([`crate::collective`]), as a list for macros: the C functions, the
//! tables of function pointers, the calls that streams carry out and the Rust methods that differ in the name
//! alone are made of them.

/// Calls the macro `$with` with `[$context]` and a row for each collective:
///
/// ```text
/// kind name Variant (dst <- src) {
///     device "header" "parameters behind the team";
///     /// documentation
///     host field = rushmem_symbol(parameters behind the team);
///     /// documentation
///     stream field = rushmem_symbol(parameters between the team, and the slot set and the stream);
/// }
/// ```
///
/// `kind` is a [`CollectiveKind`](crate::collective::CollectiveKind) and `dst`, `src` are
/// [`Blocks`](crate::collective::Blocks), in lower case. `c_void` has to be in scope where types are used.
#[macro_export]
macro_rules! collectives {
    ($with:path $(, $($context:tt)*)?) => { $with! {
        [$($($context)*)?]
        order sync Sync (nothing <- nothing) {
            device "barrier.h" "";
            /// Collective over the team: returns once every member has called it (OpenSHMEM 1.5, section
            /// 9.11.2). What is not complete without a quiet is not waited for. Of all PEs' team it is
            /// `rushmem_sync_all`.
            ///
            /// Errors as `rushmem_sync_all`; no PE outside of the team has a part in them.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile.
            host team_sync = rushmem_team_sync();
            /// Nothing behind it on the stream begins before every member has come to it, on a stream or in a
            /// kernel (`rushmem::sync`), in the same slot set. What a member's stream did before is seen
            /// after it on all.
            ///
            /// This and the other collectives on streams: the call is made in slot set `set` of the team, 0
            /// where it has but one. All members make the same calls in one slot set in the same order, on
            /// streams or in kernels; on different sets, calls of one team run at once. A call returns at
            /// once. Arguments are checked now, and an error means that nothing was put on the stream:
            /// `RUSHMEM_ERR_BAD_HANDLE` for what is no team or stream, `RUSHMEM_ERR_INVALID_ARGUMENT` for a
            /// slot set that the team does not have, arrays that overlap or are not aligned,
            /// `RUSHMEM_ERR_BAD_ADDRESS` for memory that the PE's device does not reach, `RUSHMEM_ERR_BAD_PE`
            /// for a root that is no member. What goes wrong later `rushmem_stream_synchronize` reports:
            /// members whose calls differ (`RUSHMEM_ERR_MISMATCH`), a slot set in use by another call of this
            /// PE (`RUSHMEM_ERR_BUSY`), a death.
            ///
            /// On a GPU each call is one launch, which may be captured into a CUDA graph and replayed. The
            /// first call of a kind has its kernel compiled, or taken from the cache, and loaded; while a
            /// stream is being captured that is refused (`RUSHMEM_ERR_UNSUPPORTED`): see
            /// `rushmem_team_prepare`.
            ///
            /// # Safety
            /// `t` is a team that lives until the work is done; the stream lives through the call.
            stream team_sync_on_stream = rushmem_team_sync_on_stream();
        }
        order barrier Barrier (nothing <- nothing) {
            device "barrier.h" "";
            /// Collective over the team: `rushmem_quiet`, then `rushmem_team_sync`. Errors as those.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile.
            host team_barrier = rushmem_team_barrier();
            /// `rushmem_team_sync_on_stream` behind a quiet: all that the stream put before is complete on
            /// every member.
            ///
            /// # Safety
            /// As for `rushmem_team_sync_on_stream`.
            stream team_barrier_on_stream = rushmem_team_barrier_on_stream();
        }
        bytes broadcast Broadcast (one <- one) {
            device "broadcast.h" "T *dst, const T *src, size_t n, int root";
            /// `bytes` bytes at `src` of the team's member `root` are at `dst` of every member, also of the
            /// root (OpenSHMEM 1.5, section 9.9.7). Collective over the team, whose members give the same
            /// size and root.
            ///
            /// This and the other collectives: `dst` and `src` are any memory of the PE's, its GPU's, too;
            /// large arrays go faster where they are symmetric. They are the same array or do not overlap.
            /// On return the destination is complete and the source may be changed. What streams and kernels
            /// do with them has ended before.
            ///
            /// Errors, on all members alike, with nothing written: `RUSHMEM_ERR_MISMATCH` for different
            /// arguments or calls; the error of a member whose arguments are wrong (`RUSHMEM_ERR_BAD_PE` for
            /// the root, `RUSHMEM_ERR_BAD_ADDRESS`, `RUSHMEM_ERR_OUT_OF_BOUNDS` and
            /// `RUSHMEM_ERR_INVALID_ARGUMENT` for arrays). `RUSHMEM_ERR_TIMEOUT` and
            /// `RUSHMEM_ERR_PEER_DEAD` leave the destination in any state. On one PE: `RUSHMEM_ERR_BUSY`
            /// while another thread is in a collective call of the team, `RUSHMEM_ERR_BAD_HANDLE` for what is
            /// no team.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` is valid for `bytes` bytes, and on the root
            /// `src`.
            host team_broadcast = rushmem_team_broadcast(
                dst: *mut c_void, src: *const c_void, bytes: usize, root: i32
            );
            /// `bytes` bytes from `src` of member `root` to `dst` of all members, the root's own too, in the
            /// stream's turn. `dst` and `src` may be one array. Symmetric memory, or any other that the PE's
            /// device reaches; `dst` is symmetric for all members or for none. Errors as
            /// `rushmem_team_sync_on_stream`.
            ///
            /// # Safety
            /// `dst` and `src` are valid for `bytes` bytes until the work is done; the rest as for
            /// `rushmem_team_sync_on_stream`.
            stream team_broadcast_on_stream = rushmem_team_broadcast_on_stream(
                dst: *mut c_void, src: *const c_void, bytes: usize, root: i32
            );
        }
        bytes fcollect Fcollect (each <- one) {
            device "fcollect.h" "T *dst, const T *src, size_t n";
            /// `bytes` bytes at `src` of each member are at `dst` of every member, one behind the other in
            /// the order of the members (OpenSHMEM 1.5, section 9.9.8). `src` may be this member's part of
            /// `dst`. Collective, and errors, as `rushmem_team_broadcast`.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `src` is valid for `bytes` bytes, `dst` for those
            /// of all members.
            host team_fcollect = rushmem_team_fcollect(dst: *mut c_void, src: *const c_void, bytes: usize);
            /// `bytes` bytes from `src` of each member to `dst` of all, in the stream's turn: those of member
            /// i at `dst + i * bytes`. `src` may be this member's part of `dst`. Memory and errors as
            /// `rushmem_team_broadcast_on_stream`.
            ///
            /// # Safety
            /// `src` is valid for `bytes` bytes and `dst` for as many of each member until the work is done;
            /// the rest as for `rushmem_team_sync_on_stream`.
            stream team_fcollect_on_stream = rushmem_team_fcollect_on_stream(
                dst: *mut c_void, src: *const c_void, bytes: usize
            );
        }
        elements collect Collect (any <- any) {
            device "collect.h" "T *dst, const T *src, size_t n";
            /// `rushmem_team_fcollect` of as many bytes as each member likes. `room` is how many `dst` has,
            /// `SIZE_MAX` where the caller knows that it is enough; `*received`, unless `received` is null,
            /// is how many have come. `src` may be this member's part of `dst`. Collective, and errors, as
            /// `rushmem_team_broadcast`; `RUSHMEM_ERR_OUT_OF_BOUNDS`, on all members, where one has too
            /// little room.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `src` is valid for `bytes` bytes, `dst` for those
            /// of all members or for `room`; `received` is null or valid.
            host team_collect = rushmem_team_collect(
                dst: *mut c_void, room: usize, src: *const c_void, bytes: usize, received: *mut usize
            );
            /// `n` elements of `elem_bytes` bytes from `src` of each member to `dst` of all, in the stream's
            /// turn, one after the other in the order of the members. `n` may differ from member to member,
            /// and be zero; element sizes are equal. `src` may be this member's part of `dst`. Memory and
            /// errors as `rushmem_team_broadcast_on_stream`.
            ///
            /// # Safety
            /// `src` is valid for its elements and `dst` for those of all members until the work is done; the
            /// rest as for `rushmem_team_sync_on_stream`.
            stream team_collect_on_stream = rushmem_team_collect_on_stream(
                dst: *mut c_void, src: *const c_void, elem_bytes: usize, n: usize
            );
        }
        bytes alltoall Alltoall (each <- each) {
            device "alltoall.h" "T *dst, const T *src, size_t n";
            /// Block `j`, of `bytes` bytes, of each member's `src` is block `my_pe` of member `j`'s `dst`
            /// (OpenSHMEM 1.5, section 9.9.5). Collective, and errors, as `rushmem_team_broadcast`.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for a block for each
            /// member.
            host team_alltoall = rushmem_team_alltoall(dst: *mut c_void, src: *const c_void, bytes: usize);
            /// The `bytes` bytes at `src + j * bytes` go to member j, in the stream's turn, where they lie at
            /// `dst + my_pe * bytes`. `dst` and `src` may be one array. Memory and errors as
            /// `rushmem_team_broadcast_on_stream`.
            ///
            /// # Safety
            /// `dst` and `src` are valid for `bytes` bytes for each member until the work is done; the rest
            /// as for `rushmem_team_sync_on_stream`.
            stream team_alltoall_on_stream = rushmem_team_alltoall_on_stream(
                dst: *mut c_void, src: *const c_void, bytes: usize
            );
        }
        elements alltoalls Alltoalls (each <- each) {
            device "alltoall.h" "T *dst, const T *src, size_t dst_stride, size_t src_stride, size_t n";
            /// `rushmem_team_alltoall` of blocks of `n` elements of `elem_bytes` bytes: element `k` of block
            /// `j` is at `(j * n + k) * src_stride` of `src`, in elements, and so in `dst` (OpenSHMEM 1.5,
            /// section 9.9.6). Strides are at least 1, and like sizes the same on all members. What lies
            /// between is not touched, and the arrays do not overlap. Collective, and errors, as
            /// `rushmem_team_broadcast`.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for the elements of all
            /// blocks.
            host team_alltoalls = rushmem_team_alltoalls(
                dst: *mut c_void, src: *const c_void, dst_stride: isize, src_stride: isize,
                elem_bytes: usize, n: usize
            );
            /// `rushmem_team_alltoall_on_stream` of `n` elements of `elem_bytes` bytes that are apart:
            /// element k for member j is element `(j * n + k) * src_stride` of `src`, and so in `dst`.
            /// Strides are 1 or more, and the same on all members. What lies between is not touched.
            ///
            /// # Safety
            /// `dst` and `src` are valid for their elements until the work is done; the rest as for
            /// `rushmem_team_sync_on_stream`.
            stream team_alltoalls_on_stream = rushmem_team_alltoalls_on_stream(
                dst: *mut c_void, src: *const c_void, dst_stride: isize, src_stride: isize,
                elem_bytes: usize, n: usize
            );
        }
        elements alltoallv Alltoallv (any <- any) {
            device "alltoallv.h"
                "T *dst, const size_t *dst_at, size_t *received, const T *src, const size_t *src_at, \
                 const size_t *n";
            /// `bytes[j]` bytes at `src_at[j]` of `src` go to member `j`, and what comes from member `i` lies
            /// at `dst_at[i]` of `dst`: `received[i]` bytes, unless `received` is null. Only senders need to
            /// know sizes. All places are in bytes, in lists with an entry for each member. `room` is how
            /// many bytes `dst` has, `SIZE_MAX` where the caller knows that it is enough. Parts of `dst` do
            /// not overlap one another or `src`. Collective, and errors, as `rushmem_team_broadcast`;
            /// `RUSHMEM_ERR_OUT_OF_BOUNDS`, on all members, where one has too little room.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; the lists are valid for an entry for each member;
            /// `src` is valid for what is sent, `dst` for what comes or for `room`; `received` is null or
            /// valid for an entry for each member.
            host team_alltoallv = rushmem_team_alltoallv(
                dst: *mut c_void, dst_at: *const usize, room: usize, received: *mut usize,
                src: *const c_void, src_at: *const usize, bytes: *const usize
            );
            /// Blocks of different sizes from every member to every member, in the stream's turn: `n[j]`
            /// elements of `elem_bytes` bytes at element `src_at[j]` of `src` go to member j, and what comes
            /// from member i lies at element `dst_at[i]` of `dst`: `received[i]` elements, where `received`
            /// is not null. The four lists have an entry for each member. They are read and written in the
            /// stream's turn, too, so they lie in memory that the PE's device reaches; a kernel before it on
            /// the stream may fill them. Memory and errors as `rushmem_team_broadcast_on_stream`.
            ///
            /// # Safety
            /// All arrays are valid for what the lists then say, until the work is done; the rest as for
            /// `rushmem_team_sync_on_stream`.
            stream team_alltoallv_on_stream = rushmem_team_alltoallv_on_stream(
                dst: *mut c_void, dst_at: *const usize, received: *mut usize, src: *const c_void,
                src_at: *const usize, n: *const usize, elem_bytes: usize
            );
        }
        reducing reduce Reduce (one <- one) {
            device "reduce.h" "T *dst, const T *src, size_t n, Op";
            /// Element `i` of every member's `dst` is that of all members' `src` combined: by `op`, one of
            /// `RUSHMEM_SUM` and its like, as numbers of `type`, one of `RUSHMEM_INT32` and its like
            /// (OpenSHMEM 1.5, section 9.9.9).
            ///
            /// Members are combined in the order of their numbers, one after the other, so that the result is
            /// the same bits on every member, in every run, and in kernels. 16-bit floats are combined in 32
            /// bits and rounded once. Collective, and errors, as `rushmem_team_broadcast`;
            /// `RUSHMEM_ERR_INVALID_ARGUMENT` for a type or an operator that does not exist or that do not go
            /// together.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
            host team_reduce = rushmem_team_reduce(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
            /// Element i of `dst`, on every member, is that of all members' `src` combined by `op`
            /// (`RUSHMEM_SUM` and its like), in the stream's turn: `n` elements of type `type`
            /// (`RUSHMEM_FLOAT` and its like). The same bits on every member, and in every run: members are
            /// combined in the order of their numbers. `dst` and `src` may be one array; each is symmetric
            /// for all members or for none. Errors as `rushmem_team_broadcast_on_stream`;
            /// `RUSHMEM_ERR_INVALID_ARGUMENT` where the operator makes no sense for the type,
            /// `RUSHMEM_ERR_UNSUPPORTED` for products of `RUSHMEM_COMPLEX_DOUBLE`.
            ///
            /// # Safety
            /// `dst` and `src` are valid for `n` elements until the work is done; the rest as for
            /// `rushmem_team_sync_on_stream`.
            stream team_reduce_on_stream = rushmem_team_reduce_on_stream(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
        }
        reducing reducescatter Reducescatter (one <- each) {
            device "reduce.h" "T *dst, const T *src, size_t n, Op";
            /// Member `j` gets block `j`, of `n` elements, of what `rushmem_team_reduce` would make of all
            /// members' `src`, which have such a block for each member. `dst` may be the first block of
            /// `src`, or this member's. Collective, and errors, as `rushmem_team_reduce`.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` is valid for `n` elements, `src` for as many
            /// for each member.
            host team_reducescatter = rushmem_team_reducescatter(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
            /// Member j gets block j, of `n` elements, of the reduction of all members' `src`, which has a
            /// block for each member. `dst` may be the first block of `src`. The rest as
            /// `rushmem_team_reduce_on_stream`.
            ///
            /// # Safety
            /// `dst` is valid for `n` elements and `src` for as many for each member until the work is done;
            /// the rest as for `rushmem_team_sync_on_stream`.
            stream team_reducescatter_on_stream = rushmem_team_reducescatter_on_stream(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
        }
        reducing inscan Inscan (one <- one) {
            device "reduce.h" "T *dst, const T *src, size_t n, Op";
            /// `rushmem_team_reduce` of the members up to each one, itself included (OpenSHMEM 1.6, inscan).
            /// Collective, and errors, as that.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
            host team_inscan = rushmem_team_inscan(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
            /// Element i of `dst` is that of the members' `src` up to this one, combined by `op`. The rest as
            /// `rushmem_team_reduce_on_stream`.
            ///
            /// # Safety
            /// As for `rushmem_team_reduce_on_stream`.
            stream team_inscan_on_stream = rushmem_team_inscan_on_stream(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
        }
        reducing exscan Exscan (one <- one) {
            device "reduce.h" "T *dst, const T *src, size_t n, Op";
            /// `rushmem_team_reduce` of the members before each one; the first one gets zeroes (OpenSHMEM
            /// 1.6, exscan). Collective, and errors, as that.
            ///
            /// # Safety
            /// `t` is a team that nobody frees meanwhile; `dst` and `src` are valid for `n` elements.
            host team_exscan = rushmem_team_exscan(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
            /// `rushmem_team_inscan_on_stream` of the members before this one; zero on the first.
            ///
            /// # Safety
            /// As for `rushmem_team_reduce_on_stream`.
            stream team_exscan_on_stream = rushmem_team_exscan_on_stream(
                dst: *mut c_void, src: *const c_void, n: usize, r#type: i32, op: i32
            );
        }
    } };
}
