//! What a row of ours is compared with, line by line. Where the two are not the same measure, or not begun by
//! the same kind of caller, there is no line: docs/performance.md says which, and why.

use super::files::{Nccl, Nvshmem, OpenShmem, Torch};
use super::Peers;
use crate::report::{Beside, Row};

impl Peers {
    /// The quickest of the libraries, of what the host does to a PE of its own host.
    pub(super) fn of_openshmem(&self, row: &Row) -> Option<Beside> {
        let (operation, bytes) = match row.measure.as_str() {
            "put" | "get" => (row.measure.as_str(), row.bytes),
            "barrier_all" => ("barrier_all 2 PEs", None),
            // Theirs is of 4 bytes.
            "fetch_add" => ("int fetch_add", Some(4)),
            _ => return None,
        };
        let scale = match row.unit.as_str() {
            "ns" => 1e3,
            "us" => 1.0,
            _ => return None,
        };
        let same = |o: &&OpenShmem| o.operation == operation && o.bytes == bytes;
        let from_host = row.shape.is_none() && row.pes == 2;
        let all = self.openshmem.iter().filter(same).filter(|_| from_host);
        let best = all.min_by(|a, b| a.us.total_cmp(&b.us))?;
        Some(Beside { name: best.library.clone(), value: best.us * scale })
    }

    pub(super) fn of_nccl(&self, row: &Row) -> Option<f64> {
        let same = |n: &&Nccl| n.collective == row.measure && n.pes == row.pes && Some(n.bytes) == row.bytes;
        self.nccl.iter().find(same).map(|nccl| nccl.us)
    }

    /// The quickest of what torch has, of collectives in a graph.
    pub(super) fn of_torch(&self, row: &Row) -> Option<Beside> {
        let in_graph = row.shape.as_ref().is_some_and(|shape| shape.scope == "graph") && row.unit == "us";
        let same = |t: &&Torch| {
            t.collective == row.measure && t.pes == row.pes && Some(t.bytes) == row.bytes && in_graph
        };
        let best = self.torch.iter().filter(same).min_by(|a, b| a.us.total_cmp(&b.us))?;
        Some(Beside { name: best.peer.clone(), value: best.us })
    }

    pub(super) fn of_nvshmem(&self, row: &Row) -> Option<f64> {
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
        // A word by one thread, more by all threads of a block.
        let one_word = scope == "thread" && row.bytes == Some(8);
        let by_threads =
            |test: &str| (scope == "block" || one_word).then(|| find(test, "", "", "", row.bytes)).flatten();
        // Of the launches and element types that theirs was measured with, the quickest.
        let collective = |test: &str, series: &str, bytes: Option<u64>| {
            let test = format!("device-coll-{test}_latency");
            let same = |n: &&Nvshmem| {
                n.test == test
                    && (series.is_empty() || n.series == series)
                    && n.pes == row.pes
                    && n.scope == scope
                    && bytes.is_none_or(|bytes| n.bytes == bytes)
            };
            self.nvshmem.iter().filter(same).map(|n| n.value).min_by(f64::total_cmp)
        };
        let pair = "device-pt-to-pt-shmem_";
        match row.measure.as_str() {
            "put + quiet" if scope == "stream" => find("host-pt-to-pt-latency", "", "", "", row.bytes),
            "put + quiet" => find(&format!("{pair}put_latency"), "", scope, "", row.bytes),
            "p + quiet" => by_threads(&format!("{pair}p_latency")),
            "inc + quiet" => {
                find(&format!("{pair}atomic_latency"), "shmem_at_uint64_t_inc_ping_lat", "", "", None)
            }
            "signal ping-pong" if scope == "thread" => {
                find(&format!("{pair}signal_ping_pong_latency"), "", "", "", None)
            }
            "put_signal ping-pong" => one_thread(&format!("{pair}put_signal_ping_pong_latency")),
            "put + quiet ping-pong" => one_thread(&format!("{pair}put_ping_pong_latency")),
            "p + quiet ping-pong" => by_threads(&format!("{pair}p_ping_pong_latency")),
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
            "reduce" => collective("reduction", "", row.bytes),
            "broadcast" => collective("bcast", "", row.bytes),
            "fcollect" | "alltoall" => collective(&row.measure, "", row.bytes),
            "team sync" => collective("sync", "sync_device", None),
            "team barrier" => collective("barrier", "barrier_device", None),
            "sync_all" => collective("sync", "sync_all_device", None),
            "barrier_all" if scope == "stream" => {
                find("host-coll-barrier_all_on_stream", "", "None", "", None)
            }
            "barrier_all" => collective("barrier", "barrier_all_device", None),
            _ => None,
        }
    }

    pub(super) fn of_limits(&self, row: &Row) -> Option<f64> {
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
            "packed ping-pong" if row.bytes == Some(8) && shape.scope == "thread" => {
                pingpong("16-byte store holding data and flag")
            }
            "put_signal ping-pong" if row.bytes == Some(8) && shape.scope == "thread" => {
                pingpong("data + st.release then relaxed poll + one ld.acquire")
            }
            _ => None,
        }
    }
}
