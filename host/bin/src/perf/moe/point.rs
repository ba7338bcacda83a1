//! What is measured: one exchange at one size; what is promised of it, and what the link allows.

use std::fmt;

use rushmem_moe::{Config, Float, Fp8, Layout, Payload, Scales};
use serde::{Deserialize, Serialize};

use crate::args::{MoeArgs, MoeLayout, MoePayload};

/// Bytes that a link between two H200s takes in a microsecond in each direction, from SMs.
pub(super) const LINK_BYTES_PER_US: f64 = 370e3;

/// One exchange.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) tokens: u32,
    pub(super) hidden: u32,
    pub(super) experts: u32,
    pub(super) top_k: u32,
    pub(super) layout: MoeLayout,
    pub(super) payload: MoePayload,
    pub(super) blocks: Option<u32>,
    pub(super) threads: Option<u32>,
    pub(super) few: Option<u32>,
    /// Sums travel as bf16.
    pub(super) rounded: bool,
}

/// From how many tokens on a round is a prefill.
const PREFILL: u32 = 1024;

/// The points that were asked for; without a choice those of which something is promised.
pub(super) fn plan(args: &MoeArgs) -> Vec<Point> {
    let point = |tokens, layout, payload, blocks| Point {
        tokens,
        hidden: args.hidden,
        experts: args.experts,
        top_k: args.top_k,
        layout,
        payload,
        blocks,
        threads: args.threads,
        few: args.few,
        rounded: args.rounded,
    };
    let (fp8, bf16) = (MoePayload::Fp8, MoePayload::Bf16);
    if args.tokens.is_empty() && args.layout.is_none() && args.payload.is_none() {
        let mut points: Vec<Point> =
            [1, 8, 32, 128].map(|tokens| point(tokens, MoeLayout::ExpertMajor, fp8, args.blocks)).into();
        points.push(point(128, MoeLayout::RankMajor, fp8, args.blocks));
        for payload in [fp8, bf16] {
            // As others do: results are rounded before they travel.
            for blocks in [Some(24), args.blocks] {
                points.push(Point { rounded: true, ..point(4096, MoeLayout::Flat, payload, blocks) });
                // A token once for each rank: what DeepEP's kernels for many tokens do.
                points.push(point(4096, MoeLayout::RankMajor, payload, blocks));
            }
        }
        return points;
    }
    let tokens = if args.tokens.is_empty() { vec![1, 8, 32, 128] } else { args.tokens.clone() };
    let layout = args.layout.unwrap_or(MoeLayout::ExpertMajor);
    let payload = args.payload.unwrap_or(fp8);
    tokens.into_iter().map(|tokens| point(tokens, layout, payload, args.blocks)).collect()
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = match self.layout {
            MoeLayout::ExpertMajor => "expert-major",
            MoeLayout::RankMajor => "rank-major",
            MoeLayout::Flat => "flat",
        };
        let payload = if self.payload == MoePayload::Fp8 { "fp8" } else { "bf16" };
        write!(f, "{} tokens, {payload}, {layout}", self.tokens)?;
        if self.rounded {
            write!(f, ", bf16 sums")?;
        }
        match self.blocks {
            Some(blocks) => write!(f, ", {blocks} blocks"),
            None => Ok(()),
        }
    }
}

impl Point {
    pub(super) fn config(&self) -> Config {
        let payload = match self.payload {
            MoePayload::Fp8 => Payload::Cast(Fp8::E4m3, Scales::F32),
            MoePayload::Bf16 => Payload::Floats(Float::Bf16),
        };
        let layout = match self.layout {
            MoeLayout::ExpertMajor => Layout::ExpertMajor,
            MoeLayout::RankMajor => Layout::RankMajor,
            MoeLayout::Flat => Layout::Flat { align: 1 },
        };
        let mut config =
            Config::new(self.tokens, self.hidden, self.experts, self.top_k).payload(payload).layout(layout);
        if self.rounded {
            config = config.rounded_sums();
        }
        if let Some(blocks) = self.blocks {
            config = config.blocks(blocks);
        }
        if let Some(threads) = self.threads {
            config = config.threads(threads);
        }
        if let Some(few) = self.few {
            config = config.few(few);
        }
        config
    }

    /// What one rank sends to each of the others, there and back, on the average of random routing, if a
    /// token goes there once and its results come back as the fewest rows that lose nothing: what the
    /// library sends.
    pub(super) fn bytes_over_the_link(&self, pes: u32) -> (f64, f64) {
        let (n, k) = (f64::from(pes), f64::from(self.top_k));
        // Experts are drawn without replacement; with many of them it is nearly this.
        let none = (1.0 - 1.0 / n).powf(k);
        let one = k / n * (1.0 - 1.0 / n).powf(k - 1.0);
        let tokens = f64::from(self.tokens) * (n - 1.0);
        let config = self.config();
        let there = tokens * (1.0 - none) * f64::from(config.row_bytes() + config.side_bytes());
        let row = f64::from(self.hidden) * 2.0;
        let once = self.layout == MoeLayout::RankMajor || self.rounded;
        let rows = if once { 1.0 - none } else { one + 2.0 * (1.0 - none - one) };
        (there, tokens * rows * row)
    }

    /// What is promised of two H200s, in microseconds: dispatch, combine, pair.
    pub(super) fn limit(&self, phase: &str, pes: u32) -> Option<f64> {
        if (pes, self.hidden, self.experts, self.top_k) != (2, 7168, 256, 8) {
            return None;
        }
        use MoeLayout::{ExpertMajor, Flat, RankMajor};
        use MoePayload::{Bf16, Fp8};
        let (dispatch, combine, pair) = match (self.tokens, self.layout, self.payload, self.blocks) {
            (1, ExpertMajor, Fp8, None) => (5.0, 5.0, 9.0),
            (8, ExpertMajor, Fp8, None) => (6.0, 6.0, 11.0),
            (32, ExpertMajor, Fp8, None) => (8.5, 10.0, 17.0),
            (128, ExpertMajor, Fp8, None) => (17.0, 25.0, 41.0),
            (128, RankMajor, Fp8, None) => (9.0, 12.0, 20.0),
            (4096, Flat, Fp8, Some(24)) => (130.0, 215.0, 345.0),
            (4096, Flat, Bf16, Some(24)) => (200.0, 215.0, 415.0),
            (4096, Flat, Fp8, None) => (105.0, 195.0, 300.0),
            (4096, Flat, Bf16, None) => (185.0, 195.0, 380.0),
            _ => return None,
        };
        match phase {
            "dispatch" => Some(dispatch),
            "combine" => Some(combine),
            _ => Some(pair),
        }
    }

    /// Whether other libraries' ways for many tokens are the ones to be beaten.
    pub(super) fn is_prefill(&self) -> bool {
        self.tokens >= PREFILL
    }
}
