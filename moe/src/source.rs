//! The kernels' text, whole: the same for GPUs and the CPU device.

use rushmem::Source;

use crate::{Config, Float, Fp8, Layout, Payload, Scales};

macro_rules! parts {
    ($($file:literal)*) => {
        concat!($("#line 1 \"", $file, "\"\n", include_str!(concat!("../kernels/", $file)), "\n"),*)
    };
}

/// Each part needs those before it.
const KERNELS: &str = parts!("exchange.h" "numbers.h" "send.h" "routing.h" "receive.h" "combine.h" "moe.cu");

/// As `kernels/numbers.h` counts them.
fn number(float: Float) -> u32 {
    match float {
        Float::Bf16 => 0,
        Float::F16 => 1,
        Float::F32 => 2,
    }
}

/// For a configuration, and so many blocks of so many threads on a multiprocessor; types and layout
/// are compiled in; sizes are not, so that few variants serve.
pub(crate) fn source(config: &Config, threads: u32, blocks_each: u32) -> Source {
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
    Source::text(KERNELS)
        .name("moe.cu")
        .define("MOE_THREADS", threads)
        .define("MOE_BLOCKS", blocks_each)
        .define("MOE_CAST", cast)
        .define("MOE_SCALES", u32::from(scales == Scales::Ue8m0))
        .define("MOE_Y", number(config.produced))
        .define("MOE_OUT", number(config.output))
        .define("MOE_LAYOUT", layout)
}
