//! Figures that were measured elsewhere, set beside ours: the project's baseline files, as they are, and earlier records of
//! this tool. A file is recognised by its head. What a figure is compared with is said here, line by line; where the two
//! are not the same measure there is no line (docs/benchmarks/README.md says which, and why).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::job::{Failure, Result};
use crate::report::{Beside, Row};

/// All figures of all files.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    nvshmem: Vec<Nvshmem>,
    nccl: Vec<Nccl>,
    limits: Vec<(String, f64)>,
    ours: Vec<Row>,
}

/// A line of NVSHMEM's file.
#[derive(Debug)]
struct Nvshmem {
    test: String,
    series: String,
    pes: u32,
    scope: String,
    launch: String,
    bytes: u64,
    value: f64,
}

/// A line of NCCL's.
#[derive(Debug)]
struct Nccl {
    collective: String,
    pes: u32,
    bytes: u64,
    us: f64,
}

/// An earlier record.
#[derive(Deserialize)]
struct Record {
    rows: Vec<Row>,
}

/// First lines of the baseline files.
const NVSHMEM: &str = "test,series,n_pes,type_op,scope,launch,bytes,unit,value";
const NCCL: &str = "collective,n_pes,bytes,bytes_are,us";
const LIMITS: &str = "probe,value,unit";

/// Whether the file begins like one of them.
fn known(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    [NVSHMEM, NCCL, LIMITS].contains(&text.lines().next().unwrap_or_default().trim())
}

impl Peers {
    /// Reads the files, and of folders all CSV files in them that it knows.
    pub(crate) fn read(given: &[PathBuf]) -> Result<Peers> {
        let mut peers = Peers::default();
        for path in given {
            let said = |error| Failure::new(format!("{}: {error}", path.display()));
            if !path.is_dir() {
                peers.read_file(path)?;
                continue;
            }
            let mut inside: Vec<PathBuf> = Vec::new();
            for entry in std::fs::read_dir(path).map_err(said)? {
                inside.push(entry.map_err(said)?.path());
            }
            inside.retain(|file| file.extension().is_some_and(|extension| extension == "csv") && known(file));
            inside.sort();
            inside.iter().try_for_each(|file| peers.read_file(file))?;
        }
        Ok(peers)
    }

    fn read_file(&mut self, file: &Path) -> Result<()> {
        let said = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| said(&error))?;
        self.take(&text).map_err(|failure| said(&failure))
    }

    fn take(&mut self, text: &str) -> Result<()> {
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
            LIMITS => {
                for line in lines() {
                    let [probe, value, unit] = cells(line)?;
                    // A line with two values is two probes' in one; the first is the put's.
                    let value: f64 = value.split(" / ").next().unwrap_or_default().parse()?;
                    self.limits.push((probe.to_owned(), if unit == "ns" { value / 1e3 } else { value }));
                }
            }
            "{" => self.ours.extend(serde_json::from_str::<Record>(text)?.rows),
            head => {
                return Err(Failure::new(format!(
                "neither a baseline file of the project nor a record of this tool: it begins with {head:?}"
            )))
            }
        }
        Ok(())
    }

    /// Sets beside a row what there is; what it has already stays where there is nothing.
    pub(crate) fn set(&self, row: &mut Row) {
        let named = |name: &'static str| move |value| Beside { name: name.to_owned(), value };
        let peer = self.of_nvshmem(row).map(named("NVSHMEM 3.8.0"));
        let peer = peer.or_else(|| self.of_nccl(row).map(named("NCCL 2.28.9")));
        let peer = peer.or_else(|| self.earlier(row).map(named("earlier record")));
        row.peer = peer.or(row.peer.take());
        row.machine = self.of_limits(row).map(named("bare probe")).or(row.machine.take());
    }

    fn earlier(&self, row: &Row) -> Option<f64> {
        let shape = |row: &Row| row.shape.as_ref().map(|s| (s.scope.clone(), s.blocks, s.threads));
        let key = |row: &Row| (row.measure.clone(), row.bytes, row.pes, row.unit.clone(), shape(row));
        self.ours.iter().find(|earlier| key(earlier) == key(row)).map(|earlier| earlier.ours.median)
    }

    fn of_nccl(&self, row: &Row) -> Option<f64> {
        let same = |n: &&Nccl| n.collective == row.measure && n.pes == row.pes && Some(n.bytes) == row.bytes;
        self.nccl.iter().find(same).map(|nccl| nccl.us)
    }

    fn of_nvshmem(&self, row: &Row) -> Option<f64> {
        let shape = row.shape.as_ref()?;
        let scope = shape.scope.as_str();
        let launch = format!("ctas={} threads={}", shape.blocks, shape.threads);
        let find = |test: &str, series: &str, scope: &str, launch: &str, bytes: Option<u64>| {
            let same = |n: &&Nvshmem| {
                n.test == test
                    && (series.is_empty() || n.series == series)
                    && n.pes == row.pes
                    && n.scope == scope
                    && n.launch == launch
                    && bytes.is_none_or(|bytes| n.bytes == bytes)
            };
            self.nvshmem.iter().find(same).map(|n| n.value)
        };
        let one_thread =
            |test: &str| (scope == "thread").then(|| find(test, "", "", "", row.bytes)).flatten();
        let by_blocks =
            |test: &str| (scope == "block").then(|| find(test, "", "", &launch, row.bytes)).flatten();
        let pair = "device-pt-to-pt-shmem_";
        match row.measure.as_str() {
            "put + quiet" if scope == "stream" => find("host-pt-to-pt-latency", "", "", "", row.bytes),
            "put + quiet" => find(&format!("{pair}put_latency"), "", scope, "", row.bytes),
            "p + quiet" => find(&format!("{pair}p_latency"), "", "", "", row.bytes),
            "signal ping-pong" => find(&format!("{pair}signal_ping_pong_latency"), "", "", "", None),
            "put_signal ping-pong" => one_thread(&format!("{pair}put_signal_ping_pong_latency")),
            "put + quiet ping-pong" => one_thread(&format!("{pair}put_ping_pong_latency")),
            "p + quiet ping-pong" => find(&format!("{pair}p_ping_pong_latency"), "", "", "", row.bytes),
            "atomic inc ping-pong" => find(
                &format!("{pair}atomic_ping_pong_latency"),
                "shmem_at_uint64_t_inc_ping_lat",
                "thread",
                "",
                None,
            ),
            // Its unit is wrong in the file: these are GB/s.
            "put bandwidth" if scope == "stream" => find("host-pt-to-pt-bw", "", "", "", row.bytes),
            "put bandwidth" => by_blocks(&format!("{pair}put_bw")),
            "get bandwidth" => by_blocks(&format!("{pair}get_bw")),
            "p bandwidth" => by_blocks(&format!("{pair}p_bw")),
            "g bandwidth" => by_blocks(&format!("{pair}g_bw")),
            "add bandwidth" => by_blocks(&format!("{pair}atomic_bw")),
            "sync_all" => find("device-coll-sync_latency", "sync_all_device", scope, "", None),
            "barrier_all" if scope == "stream" => {
                find("host-coll-barrier_all_on_stream", "", "None", "", None)
            }
            "barrier_all" => find("device-coll-barrier_latency", "barrier_all_device", scope, "", None),
            _ => None,
        }
    }

    fn of_limits(&self, row: &Row) -> Option<f64> {
        let shape = row.shape.as_ref()?;
        let find = |probe: &str| self.limits.iter().find(|(name, _)| name == probe).map(|(_, value)| *value);
        let by_blocks = |direction: &str| {
            find(&format!(
                "SM 16-byte copy {} blocks x {} threads {direction} peer",
                shape.blocks, shape.threads
            ))
        };
        let from_host = ["host", "stream", "graph"].contains(&shape.scope.as_str());
        let pingpong = |what: &str| find(&format!("second machine: ping-pong {what}"));
        match row.measure.as_str() {
            "put bandwidth" if from_host => find("copy engine write peer"),
            "get bandwidth" if from_host => find("copy engine read peer"),
            "put bandwidth" | "p bandwidth" => by_blocks("write to"),
            "get bandwidth" | "g bandwidth" => by_blocks("read from"),
            "signal ping-pong" | "atomic inc ping-pong" if shape.scope == "thread" => {
                pingpong("relaxed store and poll")
            }
            "packed ping-pong" => pingpong("16-byte store holding data and flag"),
            "put_signal ping-pong" if row.bytes == Some(8) && shape.scope == "thread" => {
                pingpong("data + st.release then relaxed poll + one ld.acquire")
            }
            _ => None,
        }
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

fn cells<const N: usize>(line: Vec<&str>) -> Result<[&str; N]> {
    line.try_into().map_err(|line: Vec<&str>| {
        Failure::new(format!("a line of {} cells, {N} are to be there: {}", line.len(), line.join(",")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Shape;
    use crate::stats::Summary;

    const OF_NVSHMEM: &str = "test,series,n_pes,type_op,scope,launch,bytes,unit,value\n\
        device-pt-to-pt-shmem_put_latency,shmem_put_latency,2,,warp,,65536,us,23.857119\n\
        device-pt-to-pt-shmem_put_bw,shmem_put_bw_uni,2,,,ctas=4 threads=1024,1024,GB/s,0.68\n\
        device-pt-to-pt-shmem_put_bw,shmem_put_bw_uni,2,,,ctas=1 threads=1024,1024,GB/s,0.4\n\
        device-coll-sync_latency,sync_all_device,8,,block,,256,us,2.18\n\
        host-pt-to-pt-bw,Bandwidth,2,,,,8,us,0.0027\n";
    const OF_LIMITS: &str = "probe,value,unit\n\
        SM 16-byte copy 4 blocks x 1024 threads write to peer,182.9,GB/s\n\
        second machine: ping-pong relaxed store and poll,1239,ns\n\
        second machine: bulk copy 4 blocks put / get,183.4 / 199.7,GB/s\n";

    fn row(
        measure: &str,
        bytes: Option<u64>,
        pes: u32,
        unit: &str,
        (scope, blocks, threads): (&str, u32, u32),
    ) -> Row {
        let mut row = Row::new(measure, bytes, pes, unit, Summary::single(1.0));
        row.shape = Some(Shape { scope: scope.into(), blocks, threads, ..Shape::default() });
        row
    }

    #[test]
    fn the_same_measure_is_found_in_each_file_and_no_other() {
        let mut peers = Peers::default();
        for text in [
            OF_NVSHMEM,
            OF_LIMITS,
            "collective,n_pes,bytes,bytes_are,us\nall_reduce,8,8,per rank buffer,17.1\n",
        ] {
            peers.take(text).expect("a baseline file");
        }
        let beside = |mut row: Row| {
            peers.set(&mut row);
            (row.peer.map(|peer| peer.value), row.machine.map(|machine| machine.value))
        };
        let warp = ("warp", 1, 32);
        assert_eq!(beside(row("put + quiet", Some(65536), 2, "us", warp)), (Some(23.857119), None));
        assert_eq!(beside(row("put + quiet", Some(65536), 8, "us", warp)), (None, None));
        let four = ("block", 4, 1024);
        assert_eq!(beside(row("put bandwidth", Some(1024), 2, "GB/s", four)), (Some(0.68), Some(182.9)));
        assert_eq!(beside(row("put bandwidth", Some(1024), 2, "GB/s", ("warp", 4, 1024))).0, None);
        assert_eq!(beside(row("put bandwidth, both ways", Some(1024), 2, "GB/s", four)), (None, None));
        assert_eq!(beside(row("sync_all", None, 8, "us", ("block", 1, 1024))), (Some(2.18), None));
        assert_eq!(beside(row("signal ping-pong", None, 2, "us", ("thread", 1, 1))), (None, Some(1.239)));
        let stream = ("stream", 0, 0);
        assert_eq!(beside(row("put bandwidth", Some(8), 2, "GB/s", stream)).0, Some(0.0027));
        assert_eq!(beside(row("all_reduce", Some(8), 8, "us", ("block", 1, 1))).0, Some(17.1));
    }

    #[test]
    fn an_earlier_record_serves_too() {
        let earlier = row("put bandwidth", Some(8), 2, "GB/s", ("block", 4, 64));
        let text =
            serde_json::to_string_pretty(&serde_json::json!({ "rows": [earlier] })).expect("plain data");
        let mut peers = Peers::default();
        peers.take(&text).expect("a record");
        let mut same = earlier.clone();
        same.ours = Summary::single(3.0);
        peers.set(&mut same);
        assert_eq!(same.peer_ratio(), Some(3.0));
        let mut other = row("put bandwidth", Some(8), 2, "GB/s", ("block", 8, 64));
        peers.set(&mut other);
        assert_eq!(other.peer, None);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let mut peers = Peers::default();
        for text in ["", "a,b\n1,2\n", "probe,value,unit\nx,1\n", "{\n}"] {
            assert!(peers.take(text).is_err(), "{text:?}");
        }
    }
}
