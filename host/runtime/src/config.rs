//! The settings of a world, read from `RUSHMEM_*` once at start. A value that makes no sense is an error that
//! names the variable, never a silent default.

pub(crate) mod launches;
pub(crate) mod placement;
mod wishes;

use std::path::PathBuf;
use std::time::Duration;

use rushmem_abi::device::RUSHMEM_QUEUE_CONTEXTS;
use rushmem_device_cpu::check;

use crate::error::{err, Result};

use launches::Launches;
use placement::Placement;

pub(crate) use wishes::{Carrier, DeviceWish, FarGpu, MappingWish, PacketClass, Ringer, TransportWish};

/// Default of the memory of teams: 500 small ones.
const DEFAULT_TEAM_MEMORY: u64 = 4 << 20;
/// Default limit of the symmetric heap. Address space only: memory is committed on demand.
const DEFAULT_HEAP_MAX: u64 = 64 << 30;

/// The settings of a world.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The device (`RUSHMEM_DEVICE`: `auto`, `cpu`, `cuda` or `cuda:N`).
    pub(crate) device: DeviceWish,
    /// The way to other PEs (`RUSHMEM_TRANSPORT`: `auto`, `direct`, `ucx`, `fake`, `queue`,
    /// `queue-emulated`, or a list of them).
    pub(crate) transport: TransportWish,
    /// How bulk gets into and out of the GPU memory of PEs that are not mapped (`RUSHMEM_FAR_GPU`: `auto`,
    /// `bounce` or `ucx`).
    pub(crate) far_gpu: FarGpu,
    /// Who carries copies to and from PEs that are not mapped (`RUSHMEM_FAR_COPIES`: `auto`, `ucx` or
    /// `messages`).
    pub(crate) far_copies: Carrier,
    /// Slots of the device ring (`RUSHMEM_RING_SLOTS`, 1024): few of them for tests of a ring that is full
    /// and wraps.
    pub(crate) ring_slots: usize,
    /// Slots of each queue of a card that kernels write (`RUSHMEM_QUEUE_SLOTS`, 1024).
    pub(crate) queue_slots: usize,
    /// Queues of a card to each PE (`RUSHMEM_QUEUE_CONTEXTS`, 1).
    pub(crate) queue_contexts: usize,
    /// After about how many requests the software card loses a link (`RUSHMEM_QUEUE_LOSE`); never, unless it
    /// is given.
    pub(crate) queue_lose: Option<u64>,
    /// Who rings a card's doorbells for kernels (`RUSHMEM_DOORBELL`: `auto`, `kernel` or `proxy`).
    pub(crate) doorbell: Ringer,
    /// The card whose queues kernels write (`RUSHMEM_CARD`), if it is to be a certain one.
    pub(crate) card: Option<String>,
    /// What its packets say to switches (`RUSHMEM_CARD_TC`, `RUSHMEM_CARD_SL`; 0).
    pub(crate) packet_class: PacketClass,
    /// Where `libibverbs.so.1` and `libmlx5.so.1` are (`RUSHMEM_VERBS`), if not where the system has them.
    pub(crate) verbs: Option<PathBuf>,
    /// The fake network's seed (`RUSHMEM_FAKE_SEED`), if it is to be a certain one.
    pub(crate) fake_seed: Option<u64>,
    /// Its usual longest delay in microseconds (`RUSHMEM_FAKE_DELAY`, 100).
    pub(crate) fake_delay: u64,
    /// Which PEs of one host are treated as a node (`RUSHMEM_PES_PER_NODE`, `RUSHMEM_NODES`): hosts for
    /// tests.
    pub(crate) placement: Placement,
    /// Limit of the symmetric heap in bytes (`RUSHMEM_HEAP_MAX`).
    pub(crate) heap_max: u64,
    /// Memory that the symmetric heap has from the start, in one piece (`RUSHMEM_HEAP_MIN`, 0: as it is
    /// needed).
    pub(crate) heap_min: u64,
    /// True where `heap_max` was asked for, so that it may not be lowered quietly.
    pub(crate) heap_max_given: bool,
    /// Bytes of each PE's heap that hold the slot sets of its teams (`RUSHMEM_TEAM_MEMORY`, 4 MiB).
    pub(crate) team_memory: u64,
    /// True where that was asked for.
    pub(crate) team_memory_given: bool,
    /// Limit of start-up (`RUSHMEM_INIT_TIMEOUT`, 60 s).
    pub(crate) init_timeout: Duration,
    /// Limit of a collective host call (`RUSHMEM_TIMEOUT`, 600 s).
    pub(crate) timeout: Duration,
    /// When a host that no longer answers is known to be gone (`RUSHMEM_PEER_TIMEOUT`, 10 s; `None`: hours).
    pub(crate) peer_timeout: Option<Duration>,
    /// A wait that lasts longer is reported (`RUSHMEM_STALL_REPORT`, 5 s; `None`: never).
    pub(crate) stall_report: Option<Duration>,
    /// A wait on data that lasts longer is an error (`RUSHMEM_WAIT_TIMEOUT`, none by default).
    pub(crate) wait_timeout: Option<Duration>,
    /// Where compiled kernels are kept (`RUSHMEM_CACHE_DIR`).
    pub(crate) cache_dir: Option<PathBuf>,
    /// The C++ compiler for kernels on the CPU (`RUSHMEM_CXX`).
    pub(crate) cxx: Option<PathBuf>,
    /// What is checked (`RUSHMEM_CHECK`).
    pub(crate) check: check::Mode,
    /// Where timelines go (`RUSHMEM_TRACE`); the PE's number comes into the name.
    pub(crate) trace: Option<PathBuf>,
    /// The blocks of a launch on a GPU whose calls are in a timeline, from its first one
    /// (`RUSHMEM_TRACE_BLOCKS`, 8).
    pub(crate) trace_blocks: u64,
    /// Whether calls are counted without a timeline, too (`RUSHMEM_COUNTERS`).
    pub(crate) counters: bool,
    /// NVRTC's library (`RUSHMEM_NVRTC`).
    pub(crate) nvrtc: Option<PathBuf>,
    /// nvJitLink's library (`RUSHMEM_NVJITLINK`).
    pub(crate) nvjitlink: Option<PathBuf>,
    /// Compute capabilities for which kernels that are loaded are compiled too (`RUSHMEM_COMPILE_FOR`).
    pub(crate) compile_for: Vec<(u32, u32)>,
    /// Streams in the world's pool (`RUSHMEM_STREAMS`, 4).
    pub(crate) streams: usize,
    /// Collectives on streams, and launches that say so, may start while the kernel before them ends
    /// (`RUSHMEM_EARLY_LAUNCH`, 1).
    pub(crate) early: bool,
    /// The world has wide packets, where its GPUs are connected as these ask for (`RUSHMEM_WIDE_PACKETS`, 1).
    pub(crate) wide_packets: bool,
    /// How collectives on streams are launched (`RUSHMEM_COLLECTIVES`).
    pub(crate) launches: Launches,
    /// Collectives of the host take heaps for memory that they cannot touch, as if a GPU had it
    /// (`RUSHMEM_TEST_APART`): for tests of that on machines without GPUs.
    pub(crate) apart: bool,
    /// A bootstrap asked for by name (`RUSHMEM_BOOTSTRAP`: `uid`, `mpi` or `single`).
    pub(crate) bootstrap: Option<String>,
    /// The interface for unique-ID sockets (`RUSHMEM_UID_IFNAME`).
    pub(crate) uid_ifname: Option<String>,
    /// No setting: what tells where this job meets from other places, where it may meet there again.
    pub(crate) meeting: Option<String>,
}

impl Config {
    /// The settings that the process environment gives.
    pub(crate) fn from_env() -> Result<Config> {
        Config::from_lookup(&|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Whether the PEs of a node are to map each other's memory. The fake network leads to other hosts where
    /// the settings make some, so that a job can have near PEs and far ones; and to everybody where they do
    /// not.
    pub(crate) fn mapping(&self) -> MappingWish {
        match self.transport {
            TransportWish::Auto | TransportWish::DirectQueueUcx => MappingWish::Wanted,
            TransportWish::Direct => MappingWish::Needed,
            TransportWish::Ucx => MappingWish::Refused("RUSHMEM_TRANSPORT=ucx"),
            TransportWish::Fake if self.placement.divides() => MappingWish::Wanted,
            TransportWish::Fake => MappingWish::Refused("RUSHMEM_TRANSPORT=fake"),
            TransportWish::QueueEmulated | TransportWish::Queue | TransportWish::QueueUcx
                if self.placement.divides() =>
            {
                MappingWish::Wanted
            }
            TransportWish::Queue => MappingWish::Refused("RUSHMEM_TRANSPORT=queue"),
            TransportWish::QueueUcx => MappingWish::Refused("RUSHMEM_TRANSPORT=queue,ucx"),
            TransportWish::QueueEmulated => MappingWish::Refused("RUSHMEM_TRANSPORT=queue-emulated"),
        }
    }

    /// The settings that `lookup` gives; split off so that tests need not touch the process environment.
    pub(crate) fn from_lookup(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Config> {
        let get = |name: &str| lookup(name).filter(|v| !v.trim().is_empty());
        let heap = get("RUSHMEM_HEAP_MAX").map(|v| bytes("RUSHMEM_HEAP_MAX", &v)).transpose()?;
        let heap_max = heap.unwrap_or(DEFAULT_HEAP_MAX);
        let heap_min =
            get("RUSHMEM_HEAP_MIN").map(|v| bytes("RUSHMEM_HEAP_MIN", &v)).transpose()?.unwrap_or(0);
        if heap_min > heap_max {
            return Err(err!(
                ENVIRONMENT,
                "RUSHMEM_HEAP_MIN: {heap_min} bytes are more than RUSHMEM_HEAP_MAX, {heap_max}"
            ));
        }
        let team_memory = get("RUSHMEM_TEAM_MEMORY").map(|v| bytes("RUSHMEM_TEAM_MEMORY", &v)).transpose()?;
        let secs = |name: &str, default: f64| get(name).map_or(Ok(default), |v| seconds(name, &v));
        let limit = |name: &str, default: f64| {
            let s = secs(name, default)?;
            if s == 0.0 {
                return Err(err!(
                    ENVIRONMENT,
                    "{name}=0: this limit cannot be switched off; give seconds > 0"
                ));
            }
            Ok(Duration::from_secs_f64(s))
        };
        let optional = |name: &str, default: f64| -> Result<Option<Duration>> {
            Ok(Some(secs(name, default)?).filter(|s| *s > 0.0).map(Duration::from_secs_f64))
        };
        let peer_timeout = optional("RUSHMEM_PEER_TIMEOUT", 10.0)?;
        if let Some(limit) = peer_timeout.filter(|limit| limit.as_secs() < 2) {
            return Err(err!(
                ENVIRONMENT,
                "RUSHMEM_PEER_TIMEOUT={}: hosts are asked each second whether they are there, so give at least 2 seconds, \
                 or 0 for no limit",
                limit.as_secs_f64()
            ));
        }
        let bootstrap = get("RUSHMEM_BOOTSTRAP").map(|v| v.trim().to_ascii_lowercase());
        if let Some(b) = bootstrap.as_deref().filter(|b| !["uid", "mpi", "single"].contains(b)) {
            return Err(err!(ENVIRONMENT, "RUSHMEM_BOOTSTRAP={b}: expected uid, mpi or single"));
        }
        let transport =
            get("RUSHMEM_TRANSPORT").map_or(Ok(TransportWish::Auto), |v| TransportWish::parse(&v))?;
        let check = get("RUSHMEM_CHECK").map_or(Ok(check::Mode::OFF), |v| {
            check::Mode::from_text(&v).map_err(|text| err!(ENVIRONMENT, "{text}"))
        })?;
        if check.is_on() && transport.has_queues() {
            return Err(err!(
                ENVIRONMENT,
                "RUSHMEM_CHECK does not see what a network card does: leave out RUSHMEM_TRANSPORT={}",
                TransportWish::name(transport as u32)
            ));
        }
        Ok(Config {
            device: get("RUSHMEM_DEVICE").map_or(Ok(DeviceWish::Auto), |v| device(&v))?,
            transport,
            far_gpu: get("RUSHMEM_FAR_GPU").map_or(Ok(FarGpu::Auto), |v| FarGpu::parse(&v))?,
            far_copies: get("RUSHMEM_FAR_COPIES").map_or(Ok(Carrier::Auto), |v| Carrier::parse(&v))?,
            ring_slots: get("RUSHMEM_RING_SLOTS").map_or(Ok(1024), |v| ring_slots(&v))?,
            queue_slots: get("RUSHMEM_QUEUE_SLOTS").map_or(Ok(1024), |v| queue_slots(&v))?,
            queue_contexts: get("RUSHMEM_QUEUE_CONTEXTS").map_or(Ok(1), |v| queue_contexts(&v))?,
            queue_lose: get("RUSHMEM_QUEUE_LOSE").map(|v| number("RUSHMEM_QUEUE_LOSE", &v)).transpose()?,
            doorbell: get("RUSHMEM_DOORBELL").map_or_else(|| Ok(Ringer::default()), |v| Ringer::parse(&v))?,
            card: get("RUSHMEM_CARD"),
            packet_class: PacketClass::parse(
                get("RUSHMEM_CARD_TC").as_deref(),
                get("RUSHMEM_CARD_SL").as_deref(),
            )?,
            verbs: get("RUSHMEM_VERBS").map(PathBuf::from),
            fake_seed: get("RUSHMEM_FAKE_SEED").map(|v| number("RUSHMEM_FAKE_SEED", &v)).transpose()?,
            fake_delay: get("RUSHMEM_FAKE_DELAY").map_or(Ok(100), |v| number("RUSHMEM_FAKE_DELAY", &v))?,
            placement: Placement::parse(get("RUSHMEM_PES_PER_NODE"), get("RUSHMEM_NODES"))?,
            heap_max,
            heap_min,
            heap_max_given: heap.is_some(),
            team_memory: team_memory.unwrap_or(DEFAULT_TEAM_MEMORY),
            team_memory_given: team_memory.is_some(),
            init_timeout: limit("RUSHMEM_INIT_TIMEOUT", 60.0)?,
            timeout: limit("RUSHMEM_TIMEOUT", 600.0)?,
            peer_timeout,
            stall_report: optional("RUSHMEM_STALL_REPORT", 5.0)?,
            wait_timeout: optional("RUSHMEM_WAIT_TIMEOUT", 0.0)?,
            cache_dir: get("RUSHMEM_CACHE_DIR").map(PathBuf::from),
            cxx: get("RUSHMEM_CXX").map(PathBuf::from),
            check,
            trace: get("RUSHMEM_TRACE").map(PathBuf::from),
            trace_blocks: get("RUSHMEM_TRACE_BLOCKS").map_or(Ok(8), |v| trace_blocks(&v))?,
            counters: get("RUSHMEM_COUNTERS").map_or(Ok(false), |v| on_or_off("RUSHMEM_COUNTERS", &v))?,
            nvrtc: get("RUSHMEM_NVRTC").map(PathBuf::from),
            nvjitlink: get("RUSHMEM_NVJITLINK").map(PathBuf::from),
            compile_for: get("RUSHMEM_COMPILE_FOR").map_or_else(|| Ok(Vec::new()), |v| capabilities(&v))?,
            apart: get("RUSHMEM_TEST_APART").is_some(),
            launches: get("RUSHMEM_COLLECTIVES")
                .map_or_else(|| Ok(Launches::default()), |v| Launches::parse(&v))?,
            early: get("RUSHMEM_EARLY_LAUNCH").map_or(Ok(true), |v| on_or_off("RUSHMEM_EARLY_LAUNCH", &v))?,
            wide_packets: get("RUSHMEM_WIDE_PACKETS")
                .map_or(Ok(true), |v| on_or_off("RUSHMEM_WIDE_PACKETS", &v))?,
            streams: get("RUSHMEM_STREAMS").map_or(Ok(4), |v| streams(&v))?,
            bootstrap,
            uid_ifname: get("RUSHMEM_UID_IFNAME"),
            meeting: None,
        })
    }
}

fn device(text: &str) -> Result<DeviceWish> {
    let t = text.trim().to_ascii_lowercase();
    match t.as_str() {
        "auto" => Ok(DeviceWish::Auto),
        "cpu" => Ok(DeviceWish::Cpu),
        "cuda" | "gpu" => Ok(DeviceWish::Cuda(None)),
        _ => t
            .strip_prefix("cuda:")
            .and_then(|number| number.parse().ok())
            .map(|number| DeviceWish::Cuda(Some(number)))
            .ok_or_else(|| err!(ENVIRONMENT, "RUSHMEM_DEVICE={text}: expected auto, cpu, cuda or cuda:N")),
    }
}

/// `sm_90, sm_100`.
fn capabilities(text: &str) -> Result<Vec<(u32, u32)>> {
    let one = |word: &str| {
        let number: u32 = word.trim().strip_prefix("sm_")?.parse().ok()?;
        (number >= 10).then_some((number / 10, number % 10))
    };
    text.split(',').map(one).collect::<Option<_>>().ok_or_else(|| {
        err!(
            ENVIRONMENT,
            "RUSHMEM_COMPILE_FOR={text}: expected kinds of GPUs, such as sm_90 or sm_80,sm_90,sm_100"
        )
    })
}

fn number(name: &str, text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| err!(ENVIRONMENT, "{name}={text}: expected a number, 0 or more"))
}

fn trace_blocks(text: &str) -> Result<u64> {
    match text.trim() {
        "all" => Ok(u64::MAX),
        blocks => blocks.parse().ok().filter(|blocks| *blocks > 0).ok_or_else(|| {
            err!(
                ENVIRONMENT,
                "RUSHMEM_TRACE_BLOCKS={text}: expected a number of blocks from 1, or all (default 8)"
            )
        }),
    }
}

fn ring_slots(text: &str) -> Result<usize> {
    let number = text.trim().parse::<usize>().ok();
    number.filter(|n| n.is_power_of_two() && (64..=65536).contains(n)).ok_or_else(|| {
        err!(
            ENVIRONMENT,
            "RUSHMEM_RING_SLOTS={text}: expected a power of two from 64 to 65536 (default 1024)"
        )
    })
}

fn queue_slots(text: &str) -> Result<usize> {
    let number = text.trim().parse::<usize>().ok();
    number.filter(|n| n.is_power_of_two() && (64..=16384).contains(n)).ok_or_else(|| {
        err!(
            ENVIRONMENT,
            "RUSHMEM_QUEUE_SLOTS={text}: expected a power of two from 64 to 16384 (default 1024)"
        )
    })
}

fn queue_contexts(text: &str) -> Result<usize> {
    let number = text.trim().parse().ok().filter(|n| (1..=RUSHMEM_QUEUE_CONTEXTS).contains(n));
    number.ok_or_else(|| {
        err!(
            ENVIRONMENT,
            "RUSHMEM_QUEUE_CONTEXTS={text}: expected a number from 1 to {RUSHMEM_QUEUE_CONTEXTS} (default 1)"
        )
    })
}

fn streams(text: &str) -> Result<usize> {
    let number = text.trim().parse().ok().filter(|n| (1..=64).contains(n));
    number
        .ok_or_else(|| err!(ENVIRONMENT, "RUSHMEM_STREAMS={text}: expected a number of streams from 1 to 64"))
}

/// Parses `64M`, `1.5G`, `4096`: bytes with an optional binary suffix.
fn bytes(name: &str, text: &str) -> Result<u64> {
    let bad = || {
        err!(
            ENVIRONMENT,
            "{name}={text}: expected bytes, with K, M, G or T for powers of 1024 (for example 2G)"
        )
    };
    let t = text.trim().to_ascii_uppercase();
    let t = t.strip_suffix("IB").or(t.strip_suffix('B')).unwrap_or(&t);
    let (number, shift) = match t.chars().last() {
        Some('K') => (&t[..t.len() - 1], 10),
        Some('M') => (&t[..t.len() - 1], 20),
        Some('G') => (&t[..t.len() - 1], 30),
        Some('T') => (&t[..t.len() - 1], 40),
        _ => (t, 0),
    };
    let value: f64 = number.trim().parse().map_err(|_| bad())?;
    let value = value * (1u64 << shift) as f64;
    if !value.is_finite() || !(65536.0..=(1u64 << 46) as f64).contains(&value) {
        return Err(err!(ENVIRONMENT, "{name}={text}: must lie between 64K and 64T"));
    }
    Ok(value as u64)
}

/// Parses a switch.
fn on_or_off(name: &str, text: &str) -> Result<bool> {
    match text.trim() {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(err!(ENVIRONMENT, "{name}={text}: expected 1 or 0")),
    }
}

/// Parses seconds, a fraction allowed.
fn seconds(name: &str, text: &str) -> Result<f64> {
    match text.trim().trim_end_matches('s').parse::<f64>() {
        Ok(s) if s.is_finite() && (0.0..=31_536_000.0).contains(&s) => Ok(s),
        _ => Err(err!(
            ENVIRONMENT,
            "{name}={text}: expected seconds between 0 and a year (for example 30 or 0.5)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Config> {
        Config::from_lookup(&|n| (n == name).then(|| value.to_string()))
    }

    #[test]
    fn sizes_take_suffixes() {
        for (text, want) in
            [("65536", 65536), ("64K", 65536), ("1.5M", 3 << 19), ("2G", 2 << 30), ("1TiB", 1 << 40)]
        {
            assert_eq!(with("RUSHMEM_HEAP_MAX", text).unwrap().heap_max, want, "{text}");
        }
    }

    #[test]
    fn a_bad_value_is_an_error_that_names_its_variable() {
        for (name, value) in [
            ("RUSHMEM_HEAP_MAX", "lots"),
            ("RUSHMEM_HEAP_MAX", "-1"),
            ("RUSHMEM_HEAP_MAX", "1K"),
            ("RUSHMEM_HEAP_MAX", "1e99"),
            ("RUSHMEM_HEAP_MIN", "a few"),
            ("RUSHMEM_INIT_TIMEOUT", "0"),
            ("RUSHMEM_INIT_TIMEOUT", "soon"),
            ("RUSHMEM_TIMEOUT", "nan"),
            ("RUSHMEM_STALL_REPORT", "-3"),
            ("RUSHMEM_PEER_TIMEOUT", "1.5"),
            ("RUSHMEM_BOOTSTRAP", "carrier-pigeon"),
            ("RUSHMEM_DEVICE", "tpu"),
            ("RUSHMEM_DEVICE", "cuda:x"),
            ("RUSHMEM_TRANSPORT", "smoke"),
            ("RUSHMEM_PES_PER_NODE", "0"),
            ("RUSHMEM_NODES", "0,x"),
            ("RUSHMEM_NODES", "0,,1"),
            ("RUSHMEM_NODES", "0,-1"),
            ("RUSHMEM_NODES", "0,65536"),
            ("RUSHMEM_FAR_GPU", "maybe"),
            ("RUSHMEM_FAR_COPIES", "pigeons"),
            ("RUSHMEM_COUNTERS", "some"),
            ("RUSHMEM_EARLY_LAUNCH", "maybe"),
            ("RUSHMEM_WIDE_PACKETS", "narrow"),
            ("RUSHMEM_TRACE_BLOCKS", "0"),
            ("RUSHMEM_TRACE_BLOCKS", "some"),
            ("RUSHMEM_RING_SLOTS", "32"),
            ("RUSHMEM_RING_SLOTS", "100"),
            ("RUSHMEM_RING_SLOTS", "131072"),
            ("RUSHMEM_QUEUE_CONTEXTS", "0"),
            ("RUSHMEM_QUEUE_CONTEXTS", "65"),
            ("RUSHMEM_QUEUE_CONTEXTS", "2,3"),
            ("RUSHMEM_CARD_TC", "256"),
            ("RUSHMEM_CARD_SL", "16"),
            ("RUSHMEM_FAKE_SEED", "random"),
            ("RUSHMEM_FAKE_DELAY", "-1"),
            ("RUSHMEM_STREAMS", "0"),
            ("RUSHMEM_COLLECTIVES", "reduce=wide"),
            ("RUSHMEM_TEAM_MEMORY", "plenty"),
            ("RUSHMEM_TEAM_MEMORY", "1K"),
        ] {
            let e = with(name, value).expect_err(value);
            assert_eq!(e.code, crate::error::code::ENVIRONMENT);
            assert!(e.message.contains(name) && e.message.contains(value), "{e}");
        }
    }

    #[test]
    fn devices() {
        for (text, want) in [
            ("", DeviceWish::Auto),
            ("CPU", DeviceWish::Cpu),
            ("cuda", DeviceWish::Cuda(None)),
            ("cuda:3", DeviceWish::Cuda(Some(3))),
        ] {
            assert_eq!(with("RUSHMEM_DEVICE", text).unwrap().device, want, "{text}");
        }
    }

    #[test]
    fn a_heap_does_not_begin_larger_than_it_may_become() {
        let e = with("RUSHMEM_HEAP_MIN", "8T").unwrap_err();
        assert!(e.message.contains("RUSHMEM_HEAP_MIN") && e.message.contains("RUSHMEM_HEAP_MAX"), "{e}");
        assert_eq!(with("RUSHMEM_HEAP_MIN", "8M").unwrap().heap_min, 8 << 20);
    }

    #[test]
    fn empty_means_unset_and_zero_switches_reports_off() {
        assert_eq!(with("RUSHMEM_HEAP_MAX", "").unwrap().heap_max, DEFAULT_HEAP_MAX);
        assert_eq!(with("RUSHMEM_STALL_REPORT", "0").unwrap().stall_report, None);
        assert_eq!(
            with("RUSHMEM_WAIT_TIMEOUT", "0.25s").unwrap().wait_timeout,
            Some(Duration::from_millis(250))
        );
    }
}
