//! The files that `--compare` reads. Each is recognised by its first line.

use std::path::Path;

use serde::Deserialize;

use super::Peers;
use crate::job::{Failure, Result};
use crate::report::Row;
use crate::summary;

/// A line of NVSHMEM's file.
#[derive(Debug)]
pub(super) struct Nvshmem {
    pub(super) test: String,
    pub(super) series: String,
    pub(super) pes: u32,
    pub(super) scope: String,
    pub(super) launch: String,
    pub(super) bytes: u64,
    pub(super) value: f64,
}

/// A line of NCCL's.
#[derive(Debug)]
pub(super) struct Nccl {
    pub(super) collective: String,
    pub(super) pes: u32,
    pub(super) bytes: u64,
    pub(super) us: f64,
}

/// A line of torch's collectives in a CUDA graph, on f32: NCCL's, or those of its symmetric memory.
#[derive(Debug)]
pub(super) struct Torch {
    pub(super) peer: String,
    /// As rushmem names it.
    pub(super) collective: &'static str,
    pub(super) pes: u32,
    pub(super) bytes: u64,
    pub(super) us: f64,
}

/// A line of the OpenSHMEM libraries': what their hosts call, two PEs of one host.
#[derive(Debug)]
pub(super) struct OpenShmem {
    pub(super) library: String,
    pub(super) operation: String,
    pub(super) bytes: Option<u64>,
    pub(super) us: f64,
}

/// An earlier record.
#[derive(Deserialize)]
struct Record {
    rows: Vec<Row>,
}

/// First lines of the baseline files.
const NVSHMEM: &str = "test,series,n_pes,type_op,scope,launch,bytes,unit,value";
const NCCL: &str = "collective,n_pes,bytes,bytes_are,us";
/// Comes after a line that says what was run.
const TORCH: &str = "peer,op,dtype,bytes,mode,ranks,us_median,us_min,GBps";
const TORCH_RAN: &str = "# torch ";
const LIMITS: &str = "probe,value,unit";
const OPENSHMEM: &str = "peer,operation,bytes,us_median_of_runs,us_min,us_max,runs";
/// How a file of `compat/nvshmem/bench` begins, before the library's name and a colon. Its rows are those of
/// a summary.
const BENCH: &str = "# nvshmem.h by ";

/// What a record of this tool is called.
pub(super) const EARLIER: &str = "earlier record";

/// Whether the file begins like one of them.
pub(super) fn known(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let head = text.lines().next().unwrap_or_default().trim();
    [NVSHMEM, NCCL, LIMITS, OPENSHMEM].contains(&head)
        || head.starts_with(TORCH_RAN)
        || head.starts_with(summary::HEAD)
        || head.starts_with(BENCH)
}

impl Peers {
    fn earlier(&mut self, name: &str, rows: Vec<Row>) {
        self.rows.extend(rows.into_iter().map(|row| (name.to_owned(), row)));
    }

    /// Takes what a file says.
    pub(super) fn take(&mut self, text: &str) -> Result<()> {
        let lines =
            || text.lines().skip(1).filter(|line| !line.is_empty()).map(|line| line.split(',').collect());
        match text.lines().next().unwrap_or_default().trim() {
            NVSHMEM => {
                for line in lines() {
                    self.nvshmem.push(nvshmem(line)?);
                }
            }
            NCCL => {
                for line in lines() {
                    let [collective, pes, bytes, _, us] = cells(line)?;
                    let (pes, bytes, us) = (pes.parse()?, bytes.parse()?, us.parse()?);
                    self.nccl.push(Nccl { collective: collective.to_owned(), pes, bytes, us });
                }
            }
            head if head.starts_with(TORCH_RAN) => {
                for line in lines().filter(|line| line.join(",") != TORCH) {
                    self.torch.extend(torch(line)?);
                }
            }
            LIMITS => {
                for line in lines() {
                    let [probe, value, unit] = cells(line)?;
                    // A line with two values is two probes' in one; the first is the put's.
                    let value: f64 = value.split(" / ").next().unwrap_or_default().parse()?;
                    self.limits.push((probe.to_owned(), if unit == "ns" { value / 1e3 } else { value }));
                }
            }
            OPENSHMEM => {
                for line in lines() {
                    let [library, operation, bytes, us, ..] = cells::<7>(line)?;
                    let bytes = if bytes.is_empty() { None } else { Some(bytes.parse()?) };
                    let (library, operation) = (library.to_owned(), operation.to_owned());
                    self.openshmem.push(OpenShmem { library, operation, bytes, us: us.parse()? });
                }
            }
            "{" => self.earlier(EARLIER, serde_json::from_str::<Record>(text)?.rows),
            head if head.starts_with(summary::HEAD) => self.earlier(EARLIER, summary::rows(text)?),
            head if head.starts_with(BENCH) => {
                let name = head[BENCH.len()..].split(':').next().unwrap_or_default();
                self.earlier(name, summary::rows(text)?);
            }
            head => {
                return Err(Failure::new(format!(
                "neither a baseline file of the project nor a record of this tool: it begins with {head:?}"
            )))
            }
        }
        Ok(())
    }
}

fn nvshmem(line: Vec<&str>) -> Result<Nvshmem> {
    let [test, series, pes, _, scope, launch, bytes, _, value] = cells(line)?;
    Ok(Nvshmem {
        test: test.to_owned(),
        series: series.to_owned(),
        pes: pes.parse()?,
        scope: scope.to_owned(),
        launch: launch.to_owned(),
        bytes: bytes.parse()?,
        value: value.parse()?,
    })
}

/// `None` where rushmem measures no such thing.
fn torch(line: Vec<&str>) -> Result<Option<Torch>> {
    let [peer, op, element, bytes, mode, ranks, us, ..] = cells::<9>(line)?;
    let collective = match op {
        "all_reduce" | "one_shot_all_reduce" | "two_shot_all_reduce_" => "reduce",
        "reduce_scatter" => "reducescatter",
        "all_gather" => "fcollect",
        "all_to_all" => "alltoall",
        "broadcast" => "broadcast",
        _ => return Ok(None),
    };
    if (element, mode) != ("float", "graph") {
        return Ok(None);
    }
    let (pes, bytes, us) = (ranks.parse()?, bytes.parse()?, us.parse()?);
    Ok(Some(Torch { peer: peer.to_owned(), collective, pes, bytes, us }))
}

fn cells<const N: usize>(line: Vec<&str>) -> Result<[&str; N]> {
    line.try_into().map_err(|line: Vec<&str>| {
        Failure::new(format!("a line of {} cells, {N} are to be there: {}", line.len(), line.join(",")))
    })
}
