//! A strided put with a signal: columns of all PEs in one table, announced by one counted word. Elements of
//! every width, and longer than a message; at once and on streams, whose operations of one PE come in
//! between.

use super::calls;
use super::job::{alloc, barrier, job};
use crate::error::code;
use crate::exec::{self, Form};
use crate::fake::rounds;
use crate::op::movement::Movement;
use crate::op::signal::SignalOp;
use crate::op::strided::Strides;
use crate::op::Op;
use crate::testing::random::Random;
use rushmem_abi::c::*;

#[test]
fn columns_of_all_pes_are_there_when_the_sum_of_their_signals_is() {
    const ELEMENTS: [usize; 9] = [1, 2, 3, 4, 8, 12, 16, 200, 9001];
    let rounds = rounds(60).max(ELEMENTS.len());
    let seed = Random::new("columns, all PEs").next();
    job(3, |w| {
        let (me, n) = (w.my_pe(), w.n_pes() as usize);
        let room = 1 << 17;
        let (table, bulk, sig) = (alloc(w, room), alloc(w, 4096), alloc(w, 8));
        let stream = w.kernels().create_stream().unwrap();
        let mut shared = Random::seeded(seed);
        let mut total = 0;
        for round in 0..rounds {
            let elem = ELEMENTS[round % ELEMENTS.len()];
            let rows = [0, 1, 2, 7, room / (elem * n)][shared.below(5)].min(room / (elem * n)).min(900);
            // Every PE draws what every PE sends, and so knows what it is to see.
            let columns: Vec<Vec<u8>> = (0..n).map(|_| shared.bytes(2 * rows * elem)).collect();
            let worth: Vec<u64> = (0..n).map(|_| shared.next() >> 32).collect();
            let mine = &columns[me as usize];
            let strides = Strides { dst_stride: n as isize, src_stride: 2, elem, n: rows };
            let add = SignalOp::Add(worth[me as usize]);
            let on_stream = round % 2 == 1;
            for pe in 0..n as i32 {
                let to = table + me as usize * elem;
                let op = Op::put_signal(Movement::elements(to, mine.as_ptr() as usize, strides), sig, add);
                // SAFETY: the column holds the elements at their stride, and lives until the barrier.
                unsafe {
                    // One-sided copies on their way do not let the signal overtake the elements.
                    calls::put(w, bulk, vec![1; 4096].as_ptr(), 4096, pe).unwrap();
                    if on_stream {
                        exec::on_stream(w, op, pe, stream).unwrap();
                    } else {
                        exec::run(w, op, pe, Form::Blocking).unwrap();
                    }
                }
            }
            total += worth.iter().sum::<u64>();
            assert_eq!(calls::signal_wait_until(w, sig, RUSHMEM_CMP_GE, total).unwrap(), total);
            for (pe, column) in columns.iter().enumerate() {
                for row in 0..rows {
                    let at = (table + (row * n + pe) * elem) as *const u8;
                    // SAFETY: inside the table; nobody writes before the barrier.
                    let seen = unsafe { std::slice::from_raw_parts(at, elem) };
                    assert!(
                        seen == &column[2 * row * elem..][..elem],
                        "round {round}: row {row} of {rows} of PE {pe}, {elem} bytes each"
                    );
                }
            }
            // SAFETY: a stream of this world's.
            unsafe { w.synchronize_stream(stream) }.unwrap();
            barrier(w);
        }
    });
}

#[test]
fn a_refused_one_writes_neither_elements_nor_signal() {
    job(2, |w| {
        let (p, sig, freed) = (alloc(w, 256), alloc(w, 8), alloc(w, 64));
        w.free(Some(freed)).unwrap();
        let private = [7u8; 256];
        let put = |dst, src, dst_stride, n, sig, pe| {
            let strides = Strides { dst_stride, src_stride: 1, elem: 8, n };
            let op = Op::put_signal(Movement::elements(dst, src, strides), sig, SignalOp::Set(9));
            // SAFETY: what is not private memory of that length is refused.
            unsafe {
                let now = exec::run(w, op, pe, Form::Blocking).map(drop);
                let later = exec::on_stream(w, op, pe, std::ptr::null_mut());
                assert_eq!(now.as_ref().map_err(|e| e.code), later.as_ref().map_err(|e| e.code));
                now.map_err(|e| e.code)
            }
        };
        let src = private.as_ptr() as usize;
        use code::*;
        for (what, expected, got) in [
            ("PE", BAD_PE, put(p, src, 1, 4, sig, 2)),
            ("elements past the end", OUT_OF_BOUNDS, put(p, src, 11, 4, sig, 1)),
            ("stride", INVALID_ARGUMENT, put(p, src, 0, 4, sig, 1)),
            ("null source", INVALID_ARGUMENT, put(p, 0, 1, 4, sig, 1)),
            ("freed destination", BAD_ADDRESS, put(freed, src, 1, 4, sig, 1)),
            ("freed signal", BAD_ADDRESS, put(p, src, 1, 4, freed, 1)),
            ("signal unaligned", INVALID_ARGUMENT, put(p, src, 1, 4, sig + 4, 1)),
            ("signal of nothing, freed", BAD_ADDRESS, put(p, src, 1, 0, freed, 1)),
        ] {
            assert_eq!(got, Err(expected), "{what}");
        }
        w.synchronize().unwrap();
        barrier(w);
        // SAFETY: live allocations, quiet.
        let seen = unsafe { std::slice::from_raw_parts(p as *const u8, 256) }.to_vec();
        assert!(seen.iter().all(|b| *b == 0) && calls::g(w, sig, 8, w.my_pe()).unwrap() == 0);
        barrier(w);
        assert_eq!(put(p, src, 1, 0, sig, 1 - w.my_pe()), Ok(()), "without elements it is a signal");
        w.synchronize().unwrap();
        barrier(w);
        assert_eq!(calls::g(w, sig, 8, w.my_pe()).unwrap(), 9);
        barrier(w);
    });
}
