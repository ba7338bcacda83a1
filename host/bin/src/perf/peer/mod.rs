//! Figures that were measured elsewhere, set beside ours: the project's baseline files, as they are, and
//! earlier records and summaries of this tool. `files.rs` reads them, `matching.rs` says which line is the
//! same measure as a row of ours.

mod files;
mod matching;

use std::path::{Path, PathBuf};

use files::{known, Nccl, Nvshmem, OpenShmem, Torch, EARLIER};

use crate::job::{Failure, Result};
use crate::report::{Beside, Row};

/// All figures of all files.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    nvshmem: Vec<Nvshmem>,
    nccl: Vec<Nccl>,
    torch: Vec<Torch>,
    limits: Vec<(String, f64)>,
    openshmem: Vec<OpenShmem>,
    /// Of this tool, or with its names; and whose they are.
    rows: Vec<(String, Row)>,
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
            inside.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
            inside.retain(|file| {
                let known = known(file);
                if !known {
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    eprintln!("rushmem-perf: {name} is no file that --compare knows: left out");
                }
                known
            });
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

    /// Sets beside a row what there is; what it has already stays where there is nothing.
    pub(crate) fn set(&self, row: &mut Row) {
        let named = |name: &'static str| move |value| Beside { name: name.to_owned(), value };
        let peer = self.of_nvshmem(row).map(named("NVSHMEM 3.8.0"));
        let peer = peer.or_else(|| self.of_nccl(row).map(named("NCCL 2.28.9")));
        let peer = peer.or_else(|| self.of_torch(row));
        let peer = peer.or_else(|| self.of_openshmem(row));
        // What says whose it is was measured by the same loops.
        let peer = self.same(row, |name| name != EARLIER).or(peer);
        let peer = peer.or_else(|| self.same(row, |name| name == EARLIER));
        row.peer = peer.or(row.peer.take());
        row.machine = self.of_limits(row).map(named("bare probe")).or(row.machine.take());
    }

    /// The same row among those of this tool's names.
    fn same(&self, row: &Row, wanted: impl Fn(&str) -> bool) -> Option<Beside> {
        let shape = |row: &Row| row.shape.as_ref().map(|s| (s.scope.clone(), s.blocks, s.threads));
        let key = |row: &Row| (row.measure.clone(), row.bytes, row.pes, row.unit.clone(), shape(row));
        let found = self.rows.iter().find(|(name, other)| wanted(name) && key(other) == key(row));
        found.map(|(name, other)| Beside { name: name.clone(), value: other.ours.median })
    }
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
        device-pt-to-pt-shmem_p_latency,shmem_p_latency,2,,,,8,us,1.12\n\
        device-pt-to-pt-shmem_signal_ping_pong_latency,shmem_sig_ping_lat,2,,,,8,us,2.5\n\
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
        assert_eq!(
            beside(row("signal ping-pong", None, 2, "us", ("thread", 1, 1))),
            (Some(2.5), Some(1.239))
        );
        let one = ("thread", 1, 1);
        assert_eq!(beside(row("signal ping-pong", None, 2, "us", one)).0, Some(2.5));
        assert_eq!(beside(row("p + quiet", Some(8), 2, "us", one)).0, Some(1.12));
        assert_eq!(beside(row("p + quiet", Some(8), 2, "us", ("block", 1, 1024))).0, Some(1.12));
        // What a kernel does is nothing beside what the host calls for.
        for scope in ["stream", "graph", "host"] {
            for measure in ["p + quiet", "signal ping-pong"] {
                assert_eq!(beside(row(measure, Some(8), 2, "us", (scope, 0, 0))), (None, None), "{scope}");
            }
        }
        let stream = ("stream", 0, 0);
        assert_eq!(beside(row("put bandwidth", Some(8), 2, "GB/s", stream)).0, Some(0.0027));
        assert_eq!(beside(row("all_reduce", Some(8), 8, "us", ("block", 1, 1))).0, Some(17.1));
    }

    #[test]
    fn the_hosts_operations_stand_beside_the_quickest_openshmem() {
        let mut peers = Peers::default();
        let text = "peer,operation,bytes,us_median_of_runs,us_min,us_max,runs\n\
            Slow,put,8,1.765,0.5,2.9,10\nQuick,put,8,0.04,0.03,0.04,12\n\
            Quick,barrier_all 2 PEs,,0.365,0.3,0.8,12\nQuick,int fetch_add,4,0.045,0.04,0.8,12\n";
        peers.take(text).expect("a baseline file");
        let beside = |mut row: Row| {
            peers.set(&mut row);
            row.peer.map(|peer| (peer.name, peer.value))
        };
        let of = |measure, bytes, unit| Row::new(measure, bytes, 2, unit, Summary::single(1.0));
        let quick = |value| Some(("Quick".to_owned(), value));
        assert_eq!(beside(of("put", Some(8), "ns")), quick(40.0));
        assert_eq!(beside(of("put", Some(8), "us")), quick(0.04));
        assert_eq!(beside(of("barrier_all", None, "ns")), quick(365.0));
        assert_eq!(beside(of("fetch_add", Some(8), "ns")), quick(45.0));
        assert_eq!(beside(of("put", Some(64), "ns")), None);
        assert_eq!(beside(of("put bandwidth", Some(8), "GB/s")), None);
        assert_eq!(beside(row("barrier_all", None, 2, "us", ("block", 1, 64))), None, "a kernel's");
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
    fn what_the_same_loops_measured_comes_first() {
        const OF_BENCH: &str = "# nvshmem.h by NVSHMEM 3.8.0: bench --csv x\n# 2 x NVIDIA H200\n\
            operation,bytes,pes,scope,blocks,threads,unit,median,reference,reference_median,limit,verdict,peer,peer_value\n\
            put + quiet,65536,2,warp,1,32,us,21.5,,,,,,\n";
        let mut peers = Peers::default();
        for text in [OF_NVSHMEM, OF_BENCH] {
            peers.take(text).expect("a file that it knows");
        }
        let mut there = row("put + quiet", Some(65536), 2, "us", ("warp", 1, 32));
        peers.set(&mut there);
        assert_eq!(there.peer, Some(Beside { name: "NVSHMEM 3.8.0".to_owned(), value: 21.5 }));
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let mut peers = Peers::default();
        for text in ["", "a,b\n1,2\n", "probe,value,unit\nx,1\n", "{\n}"] {
            assert!(peers.take(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn of_torch_the_quickest_counts_and_only_for_graphs() {
        const OF_TORCH: &str = "# torch 2.11.0 nccl 2.28.9 NVIDIA H200 ops_per_graph 20\n\
            peer,op,dtype,bytes,mode,ranks,us_median,us_min,GBps\n\
            nccl,all_reduce,float,8,graph,2,11.3,11.0,0.001\n\
            torch-symm,two_shot_all_reduce_,float,8,graph,2,6.5,6.4,0.001\n\
            torch-symm,one_shot_all_reduce,float,8,graph,2,6.1,6.0,0.001\n\
            nccl,all_reduce,bf16,8,graph,2,1.0,1.0,0.001\n\
            nccl,all_gather,float,1024,stream,2,1.0,1.0,0.001\n";
        let mut peers = Peers::default();
        peers.take(OF_TORCH).expect("a baseline file");
        let beside = |measure: &str, bytes: u64, scope: &str| {
            let mut row = row(measure, Some(bytes), 2, "us", (scope, 1, 1));
            peers.set(&mut row);
            row.peer.map(|peer| (peer.name, peer.value))
        };
        assert_eq!(beside("reduce", 8, "graph"), Some(("torch-symm".to_owned(), 6.1)));
        assert_eq!(beside("reduce", 8, "stream"), None);
        assert_eq!(beside("reduce", 16, "graph"), None);
        assert_eq!(beside("fcollect", 1024, "graph"), None);
    }
}
