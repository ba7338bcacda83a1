//! The kernels' text, whole: the same for GPUs and the CPU device.

use crate::rooms::{Rooms, ROOMS};
use crate::{Config, Float, Fp8, Layout, Payload, Scales};

macro_rules! parts {
    ($($file:literal)*) => {
        concat!($("#line 1 \"", $file, "\"\n", include_str!(concat!("../kernels/", $file)), "\n"),*)
    };
}

/// The text of all kernels, of the name `moe.cu`. Each part needs those before it.
pub const KERNELS: &str = parts!(
    "exchange.h" "numbers.h" "pieces.h" "rows.h" "send.h" "send_rows.h" "routing.h" "receive.h"
    "sums.h" "by_lanes.h" "combine.h"
    "few.h" "few_send.h" "few_hearing.h" "few_routing.h" "few_rows.h" "few_receive.h" "few_combine.h" "few_packed.h"
    "moe.cu"
);

/// As `kernels/numbers.h` counts them.
fn number(float: Float) -> u32 {
    match float {
        Float::Bf16 => 0,
        Float::F16 => 1,
        Float::F32 => 2,
    }
}

/// Its macros for a configuration, and for blocks of so many threads and warps with so many pieces, on the
/// CPU device and on GPUs; types, layout and whether the experts of all tokens are read in place are compiled
/// in, and whether lanes fetch what a combine adds (`by_lanes`); sizes are not, so that few variants serve.
pub(crate) fn options(
    config: &Config,
    cpu: (u32, u32, Rooms),
    gpu: (u32, u32, Rooms),
    in_place: bool,
    few: bool,
    by_lanes: bool,
) -> Vec<String> {
    let (cast, scales) = match config.payload {
        Payload::Cast(Fp8::E4m3, scales) => (1, scales),
        Payload::Cast(Fp8::E5m2, scales) => (2, scales),
        _ => (0, Scales::F32),
    };
    let layout = match config.layout {
        Layout::ExpertMajor => 0,
        Layout::RankMajor => 1,
        Layout::Flat { .. } => 2,
    };
    let both = [
        ("CAST", cast),
        ("SCALES", u32::from(scales == Scales::Ue8m0)),
        ("Y", number(config.produced)),
        ("OUT", number(config.output)),
        ("LAYOUT", layout),
        ("IN_PLACE", in_place.into()),
        ("FEW", few.into()),
        ("BY_LANES", by_lanes.into()),
    ];
    let of = |device: &'static str, (threads, pieces, rooms): (u32, u32, Rooms)| {
        // Blocks of a multiprocessor, with as many registers a thread as that leaves.
        let blocks = (512 / threads).max(1);
        let all = [("THREADS", threads), ("BLOCKS", blocks), ("PIECES", pieces)].into_iter();
        let rooms = [("TAKERS", rooms.takers), ("ROOMS", ROOMS), ("ROOM", rooms.room)];
        let all = all.chain(rooms.into_iter().filter(|_| !few));
        all.map(move |(name, value)| format!("{device}-DMOE_{name}={value}"))
    };
    let both = both.map(|(name, value)| format!("-DMOE_{name}={value}"));
    both.into_iter().chain(of("--cxx=", cpu)).chain(of("--nvrtc=", gpu)).collect()
}
