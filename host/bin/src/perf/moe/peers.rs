//! Figures of other libraries, as the project's baseline has them: `moe-*.csv`.

use std::path::{Path, PathBuf};

use super::point::Point;
use crate::args::MoePayload;
use crate::job::{Failure, Result};

const HEAD: &str = "peer,ranks,tokens,experts,topk,hidden,dispatch_type,combine_type,phase,launch,us";

/// A line of such a file.
#[derive(Debug, Clone)]
struct Line {
    peer: String,
    /// ranks, tokens, experts, top_k, hidden.
    sizes: [u32; 5],
    dispatch_type: String,
    phase: String,
    launch: String,
    us: f64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    lines: Vec<Line>,
}

impl Peers {
    /// Reads files, and of folders those that begin with `moe-`.
    pub(super) fn read(given: &[PathBuf]) -> Result<Peers> {
        let mut peers = Peers::default();
        for path in given {
            if !path.is_dir() {
                peers.take(path)?;
                continue;
            }
            for entry in std::fs::read_dir(path)? {
                let file = entry?.path();
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.starts_with("moe-") && name.ends_with(".csv") {
                    peers.take(&file)?;
                }
            }
        }
        Ok(peers)
    }

    fn take(&mut self, file: &Path) -> Result<()> {
        let said = |what: String| Failure::new(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| said(error.to_string()))?;
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        if lines.next() != Some(HEAD) {
            return Err(said(format!("its first line is not {HEAD}")));
        }
        for line in lines {
            let fields = fields(line);
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let [peer, ranks, tokens, experts, top_k, hidden, dispatch_type, _, phase, launch, us] =
                fields[..]
            else {
                return Err(said(format!("not eleven fields: {line}")));
            };
            let mut sizes = [0; 5];
            for (to, from) in sizes.iter_mut().zip([ranks, tokens, experts, top_k, hidden]) {
                *to = from.parse().map_err(|_| said(format!("{from} is no number: {line}")))?;
            }
            let us = us.parse().map_err(|_| said(format!("{us} is no number: {line}")))?;
            self.lines.push(Line {
                peer: peer.to_owned(),
                sizes,
                dispatch_type: dispatch_type.to_owned(),
                phase: phase.to_owned(),
                launch: launch.to_owned(),
                us,
            });
        }
        Ok(())
    }

    /// The best of the same: sizes, type, phase; of decoding in a graph, as ours is.
    pub(super) fn best(&self, point: &Point, pes: u32, phase: &str) -> Option<(String, f64)> {
        let sizes = [pes, point.tokens, point.experts, point.top_k, point.hidden];
        let payload = if point.payload == MoePayload::Fp8 { "fp8" } else { "bf16" };
        let alike = |line: &&Line| {
            line.sizes == sizes
                && line.phase == phase
                && (line.dispatch_type == payload || phase == "combine")
                && (line.launch == "graph" || point.is_prefill())
        };
        let best = self.lines.iter().filter(alike).min_by(|a, b| a.us.total_cmp(&b.us))?;
        Some((best.peer.clone(), best.us))
    }
}

/// The fields of a line, of which those with commas stand in quotation marks.
fn fields(line: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            c => all.last_mut().expect("there is one").push(c),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MoeLayout;

    #[test]
    fn the_best_peer_of_the_same_sizes_is_found() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("moe-test.csv");
        let lines = [
            "A,2,8,256,8,7168,fp8,bf16,dispatch,graph,16.5",
            "B,2,8,256,8,7168,fp8,bf16,dispatch,graph,18.6",
            "\"B, slow\",2,8,256,8,7168,fp8,bf16,dispatch,stream,3.0",
            "A,4,8,256,8,7168,fp8,bf16,dispatch,graph,1.0",
        ];
        std::fs::write(&file, format!("{HEAD}\n{}\n", lines.join("\n"))).expect("a file");
        let peers = Peers::read(&[folder.path().to_owned()]).expect("what was just written");
        let point = Point {
            tokens: 8,
            hidden: 7168,
            experts: 256,
            top_k: 8,
            layout: MoeLayout::ExpertMajor,
            payload: MoePayload::Fp8,
            blocks: None,
            threads: None,
            few: None,
            rounded: false,
        };
        assert_eq!(peers.best(&point, 2, "dispatch"), Some(("A".to_owned(), 16.5)));
        assert_eq!(peers.best(&point, 2, "combine"), None);
        std::fs::write(&file, "other\n").expect("a file");
        assert!(Peers::read(&[file]).is_err());
    }
}
